"""Builds the CPU kernels with the compiler's sanitizers and runs the tests and the attacks of the ops on them.

python tools/sanitize.py [--only address|thread] [--seconds 300]

address: ASan and UBSan. thread: TSan. Both run in a copy of the package under build/sanitize/, by the Python that is
there; torch itself is as it was installed.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD, SHIM = ROOT / "build" / "sanitize", ROOT / "tools" / "sanitize"
COMMON = "-O1;-g;-fno-omit-frame-pointer"
# What a sanitizer is built with, what must be loaded before Python, and that it stops at the first fault.
OPTIONS = {
    "address": {
        "flags": "-fsanitize=address,undefined;-fno-sanitize=vptr;-fno-sanitize-recover=undefined",
        "preload": ("libasan.so", "libstdc++.so"),  # libstdc++: else ASan does not find what throws
        "environment": {
            "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "OMP_NUM_THREADS": "1",
        },
    },
    "thread": {
        # No versions of a function: what chooses one runs before TSan's own functions can be called.
        "flags": "-fsanitize=thread;-Dtarget_clones(...)=",
        "preload": ("libtsan.so",),
        "environment": {
            "TSAN_OPTIONS": f"halt_on_error=1:allocator_may_return_null=1:suppressions={SHIM / 'tsan.txt'}",
            "OMP_NUM_THREADS": "3",
        },
    },
}  # fmt: skip
# Kernels compiled for GPUs, Triton's interpreter and graphs have nothing to do with the extension. -s: what a sanitizer
# writes is seen. Left out: the units in the last place of activations, which -O1, fusing no multiply with an addition,
# misses; and the faults on purpose, of which a sanitizer makes an exit status in place of a signal.
TESTS = [
    "tests/ops", "tests/embed/test_vector_text.py",
    "tests/static/test_cooccurrences.py", "tests/static/test_glove_update.py",
    "-s", "-p", "no:cacheprovider",
    "-k", "not triton and not cuda and not gpu and not compile",
    "--deselect", "tests/ops/test_activations.py::test_both_are_within_three_units_in_the_last_place",
    "--deselect", "tests/ops/test_gemm.py::test_packing_stays_inside_the_weight",
]  # fmt: skip


def library(name: str) -> str:
    """The path of a library of the compiler."""
    command = ["g++", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def built(kind: str) -> pathlib.Path:
    """A copy of the package with the extension built under the sanitizer, and the tests."""
    place, flags = BUILD / kind, OPTIONS[kind]["flags"]
    bare = shutil.ignore_patterns(".*", "build", "dist", "_C*.so", "_C.digest", "__pycache__")
    shutil.copytree(ROOT, place, ignore=bare, dirs_exist_ok=True)
    linked = next(flag for flag in flags.split(";") if flag.startswith("-fsanitize="))
    arguments = (
        f"-DELMO_FAST_CXX_OPTIONS={COMMON};{flags}", f"-DCMAKE_MODULE_LINKER_FLAGS={linked}",
        "-DCMAKE_BUILD_TYPE=None",
    )  # fmt: skip
    environment = os.environ | {"ELMO_FAST_REQUIRE_NATIVE": "1", "CMAKE_ARGS": shlex.join(arguments)}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=place, env=environment, check=True)
    return place


def run(kind: str, place: pathlib.Path, words: list[str]) -> int:
    """Runs Python in the copy with the sanitizer loaded; the status."""
    preload = " ".join(map(library, OPTIONS[kind]["preload"]))
    environment = os.environ | OPTIONS[kind]["environment"] | {"LD_PRELOAD": preload, "PYTHONPATH": str(place)}
    return subprocess.run([sys.executable, "-m", *words], cwd=place, env=environment).returncode


def main() -> int:
    """Builds and runs; 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(OPTIONS), help="one of the two")
    parser.add_argument("--seconds", type=float, default=300, help="of attacks on the ops, for each")
    options, worst = parser.parse_args(), 0
    for kind in [options.only] if options.only else sorted(OPTIONS):
        place = built(kind)
        tests = run(kind, place, ["pytest", "-q", *TESTS])
        targets = sorted(path.stem for path in (place / "tests/fuzz/targets").glob("op_*.py"))
        attacks = run(kind, place, ["tests.fuzz", "--seconds", str(options.seconds), "--targets", *targets])
        print(
            f"{kind}: op tests {'failed' if tests else 'passed'}; attacks {'found faults' if attacks else 'found none'}"
        )
        worst = max(worst, int(bool(tests or attacks)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
