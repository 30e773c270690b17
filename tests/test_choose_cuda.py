"""Choice of the CUDA compiler and the GPUs; an unfit compiler costs the CUDA kernels alone."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
CHOOSE = ROOT / "csrc" / "choose_cuda.cmake"
OLD = ("35", "50", "60", "70", "75")

cmake = shutil.which("cmake", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("cmake")
pytestmark = pytest.mark.skipif(cmake is None, reason="cmake is not installed")


def fake_nvcc(folder, release, *architectures, status=0):
    """A program that answers as nvcc does, and compiles nothing."""
    program = folder / "nvcc"
    known = " ".join(f"compute_{each}" for each in architectures)
    program.write_text(f"""#!/bin/sh
case $1 in
--version) echo "Cuda compilation tools, release {release}, V{release}.1"; exit {status};;
--list-gpu-arch) printf '%s\\n' {known};;
*) exit 1;;
esac
""")
    program.chmod(0o755)
    return program


def chosen(folder, nvcc, torch_cuda):
    """(why not, architectures) of `choose_cuda`."""
    script = folder / "script.cmake"
    script.write_text(
        f'include({CHOOSE})\nchoose_cuda("{nvcc}" {torch_cuda} why architectures)\n'
        'message("${why}|${architectures}")\n'
    )
    done = subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=True)
    why, _, architectures = done.stderr.strip().partition("|")
    return why, architectures.split(";") if architectures else []


@pytest.mark.parametrize(
    ("release", "known", "expected"),
    [
        ("12.4", ("80", "86", "89", "90"), "80-real 86-real 89-real 90a-real 80-virtual 90-virtual"),
        ("12.8", ("80", "86", "89", "90", "100", "120"),
         "80-real 86-real 89-real 90a-real 100-real 120-real 80-virtual 120-virtual"),
        ("12.0", ("80",), "80-real 80-virtual"),
        ("12.9", ("80", "103", "121", "900"), "80-real 80-virtual"),
    ],
)  # fmt: skip
def test_kernels_are_compiled_for_the_gpus_that_nvcc_knows(tmp_path, release, known, expected):
    """Machine code for each, PTX of the oldest and the newest; none for GPUs before sm_80, and none that is unknown."""
    why, architectures = chosen(tmp_path, fake_nvcc(tmp_path, release, *OLD, *known), "12.6")
    assert (why, architectures) == ("", expected.split())


@pytest.mark.parametrize(
    ("nvcc", "torch_cuda", "why"),
    [
        (("12.9", "80", "90"), "13.0", "nvcc is of CUDA 12.9, and torch's CUDA is 13.0"),
        (("13.0", "80", "90"), "12.8", "nvcc is of CUDA 13.0, and torch's CUDA is 12.8"),
        (("12.8", *OLD), "12.8", "nvcc is of CUDA 12.8, which compiles for no GPU of compute capability 8.0"),
        (("twelve",), "12.8", "nvcc --version names no version of CUDA"),
        (None, "12.8", "nvcc, the CUDA compiler, was not found"),
    ],
    ids=["older", "newer", "no GPU", "no version", "none"],
)
def test_an_unfit_compiler_is_refused_in_one_sentence(tmp_path, nvcc, torch_cuda, why):
    actual, architectures = chosen(tmp_path, fake_nvcc(tmp_path, *nvcc) if nvcc else "NVCC-NOTFOUND", torch_cuda)
    assert why in actual
    assert architectures == []


def test_a_compiler_that_fails_is_refused(tmp_path):
    assert "names no version" in chosen(tmp_path, fake_nvcc(tmp_path, "12.8", "80", status=1), "12.8")[0]
    assert "names no version" in chosen(tmp_path, tmp_path / "absent", "12.8")[0]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, the CUDA compiler, is not installed")
def test_what_the_real_compiler_says_is_understood(tmp_path):
    output = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    why, architectures = chosen(tmp_path, shutil.which("nvcc"), output.partition("release ")[2].split(",")[0])
    assert why == ""
    assert "80-real" in architectures


@pytest.mark.parametrize(
    ("nvcc", "why"),
    [
        (("11.8", "80", "86"), "nvcc is of CUDA 11.8, and torch's CUDA is 13.0"),
        (("13.0", "80", "90"), "compiles nothing with the C++ compiler that is here"),
    ],
    ids=["version", "compiler"],
)
def test_the_cpu_kernels_are_configured_without_a_fit_compiler(tmp_path, nvcc, why):
    """The whole CMakeLists.txt, for a torch of CUDA 13.0: it ends well, with the reason in place of CUDA's kernels."""
    import torch

    pybind11 = pytest.importorskip("pybind11")
    ninja = shutil.which("ninja", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("ninja")
    if ninja is None:
        pytest.skip("ninja is not installed")
    command = [
        cmake, f"-S{ROOT}", f"-B{tmp_path / 'build'}", "-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}",
        f"-DTORCH_INSTALL_PREFIX={pathlib.Path(torch.__file__).parent}", "-DTORCH_CUDA_VERSION=13.0",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DELMO_FAST_NVCC={fake_nvcc(tmp_path, *nvcc)}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rules = (tmp_path / "build" / "build.ninja").read_text(encoding="utf-8")
    assert "csrc/highway.cpp.o:" in rules
    assert ".cu.o:" not in rules
    assert any(why in line for line in done.stdout.splitlines() if "without CUDA kernels" in line)
    assert "ELMO_FAST_NO_CUDA=" in rules
