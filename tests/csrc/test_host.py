"""The random numbers, the products of every CPU, and the workers, compiled alone, with sanitizers."""

import functools
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from elmo_fast.ops import _native

HERE = pathlib.Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
PROGRAMS = sorted(path.stem for path in HERE.glob("*.cpp"))
# Sources that a program is linked with; without EVERY_SET only the generic kernels of these are more than a null.
LINKED = {
    "block_kernels": sorted(CSRC.glob("common/block_kernels_*.cpp")),
    "workers": [CSRC / "common" / "workers.cpp"],
}
EVERY_SET = (
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mavxvnni",
    "-mavx512f",
    "-mavx512bw",
    "-mavx512vnni",
    "-mavx512bf16",
    "-Wno-maybe-uninitialized",
)
FLAGS = ("-std=c++20", "-Og", "-g1", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_folder = tempfile.TemporaryDirectory(prefix="elmo_fast_csrc_")

RUNS_EVERY_SET = _native.C is not None and "avx512_bf16" in _native.C.isas()

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@functools.cache
def compiled(name, flags=(*FLAGS, *SANITIZERS), compiler="g++"):
    """The program of tests/csrc/<name>.cpp, built once a session."""
    program = pathlib.Path(_folder.name) / f"{name}{abs(hash((flags, compiler)))}"
    done = subprocess.run(
        [compiler, *flags, f"-I{CSRC}", f"-I{HERE}", HERE / f"{name}.cpp", *LINKED.get(name, []), "-o", program],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return program


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_finds_nothing_wrong(name):
    if name == "block_kernels" and RUNS_EVERY_SET:
        pytest.skip("compiled for every instruction set below")
    done = run(compiled(name))
    assert done.returncode == 0, done.stderr[-3000:]


def test_workers_race_nowhere():
    """With ThreadSanitizer, which sees a read that no lock and no atomic puts after the write."""
    done = run(compiled("workers", flags=(*FLAGS, "-fsanitize=thread")), "no fork")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not RUNS_EVERY_SET, reason="this CPU lacks an instruction set")
def test_the_kernels_of_every_instruction_set_stay_inside_their_operands():
    """With ASan, which sees the memory of the program that is linked with them."""
    done = run(compiled("block_kernels", flags=(*FLAGS, *SANITIZERS, *EVERY_SET)), *_native.C.isas())
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-g++") is None or shutil.which("qemu-aarch64") is None,
    reason="g++ for aarch64 (g++-aarch64-linux-gnu) or qemu-aarch64 (qemu-user) is not installed",
)
@pytest.mark.parametrize("name", ["block_kernels", "draw"])
def test_program_finds_nothing_wrong_on_aarch64(name):
    program = compiled(name, compiler="aarch64-linux-gnu-g++", flags=(*FLAGS, "-static"))
    done = subprocess.run(["qemu-aarch64", "-cpu", "max", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_draws_are_the_same_with_and_without_fma_instructions():
    """The exponential keeps its bits on a processor without FMA too, where fma() is a function of libm."""
    machine = subprocess.run(["g++", "-dumpmachine"], capture_output=True, text=True).stdout
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if not machine.startswith("x86_64") or not cpuinfo.is_file() or " fma " not in cpuinfo.read_text():
        pytest.skip("only x86-64 processors with FMA instructions can do without them")
    for more in (("-O0",), ("-O3", "-mfma", "-mavx2", "-ffp-contract=fast")):
        done = run(compiled("draw", flags=(*FLAGS[:-1], *more)))
        assert done.returncode == 0, done.stderr[-3000:]
