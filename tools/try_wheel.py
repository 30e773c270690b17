"""Tries a wheel in a new virtual environment, of some Python and torch and no compiler: it must compute the same bits.

python tools/try_wheel.py WHEEL --python python3.12 --torch 2.11.0 [--environment FOLDER]

The environment (FOLDER, kept; else a new one, removed) gets that torch and the wheel with pip. In an empty folder, with
nothing on PATH but its own programs and a few of the system's, `elmo-fast info` must say that the native kernels run,
`elmo-fast check` must find no wrong result on the CPU, README.md's lines must run, and the digests of what ops return
must be those of the extension that is built in place here. Where qemu's user mode is installed, every precision must
also run on x86-64 CPUs that lack the instruction sets of this one.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
INSIDE = ROOT / "tools" / "inside_wheel.py"
# Models of qemu, and the instruction sets that the kernels must find there; qemu itself knows no AVX-512.
MASKS = {"Nehalem": ["generic"], "Haswell": ["generic", "avx2"]}
NEEDED = ("bash", "sh", "cat", "head", "tail", "mkdir", "printf", "env", "uname")  # by README.md's lines; no compiler


def run(*command: object, **options: Any) -> str:
    """What a program prints; its errors are shown, and end this one."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"{command[0]} failed with status {done.returncode}: {done.stdout}")
    return str(done.stdout)


def installed(place: pathlib.Path, python: str, torch: str, wheel: pathlib.Path) -> pathlib.Path:
    """The Python of the environment, with that torch and the wheel."""
    executable = place / "bin" / "python"
    if not executable.is_file():
        run(python, "-m", "venv", place)
    run(executable, "-m", "pip", "install", "-q", f"torch=={torch}")
    run(executable, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel)
    run(executable, "-m", "pip", "install", "-q", wheel)  # what it depends on
    return executable


def environment(place: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """Nothing on PATH but the environment's programs and a few of the system's."""
    tools = folder / "tools"
    tools.mkdir()
    for name in NEEDED:
        if path := shutil.which(name):
            (tools / name).symlink_to(path)
    variables = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return variables | {"PATH": f"{place / 'bin'}:{tools}", "OMP_NUM_THREADS": "1", "CC": "", "CXX": ""}


def attempt(place: pathlib.Path, python: pathlib.Path, folder: pathlib.Path) -> None:
    """Runs everything; exits with a sentence where something is wrong."""
    variables = environment(place, folder)
    info = run(place / "bin" / "elmo-fast", "info", env=variables, cwd=folder)
    if "instruction set" not in info:
        sys.exit(f"elmo-fast info does not say that the native kernels run: {info}")
    (empty := folder / "empty").mkdir()
    right = run(place / "bin" / "elmo-fast", "check", "--device", "cpu", env=variables, cwd=empty).splitlines()[-1]
    masked = masks(python, variables, empty)
    digests = json.loads(run(python, INSIDE, "digests", env=variables, cwd=folder))
    here = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    expected = json.loads(run(sys.executable, INSIDE, "digests", env=here, cwd=folder))
    different = sorted(name for name in expected if digests.get(name) != expected[name])
    if different:
        sys.exit(f"other bits than those of the extension built in place: {'; '.join(different)}")
    (readme := folder / "readme").mkdir()
    run(python, INSIDE, "readme", ROOT, env=variables, cwd=readme)
    print(f"check: {right}; {len(expected)} results of ops have the same bits; {masked}; README.md's lines run")


def masks(python: pathlib.Path, variables: dict[str, str], folder: pathlib.Path) -> str:
    """Run every precision on CPUs that lack instruction sets; says on which. Exits where other sets are found."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None or platform.machine() != "x86_64":
        return "no instruction set was masked (qemu-user is not installed)"
    for model, sets in MASKS.items():
        words = (emulator, "-cpu", model, python, INSIDE, "sets")
        actual = json.loads(run(*words, env=variables, cwd=folder, stderr=subprocess.DEVNULL))
        if actual != sets:
            sys.exit(f"on a {model} the kernels find {actual}, not {sets}")
    return f"every precision runs on {' and '.join(MASKS)}"


def main() -> int:
    """Makes the environment, and tries the wheel in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="which Python makes the environment")
    parser.add_argument("--torch", required=True, help="the version of torch")
    parser.add_argument("--environment", type=pathlib.Path, help="the environment's folder, which is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        place = (options.environment or folder / "environment").resolve()
        python = installed(place, options.python, options.torch, options.wheel.resolve())
        say = "import sys, torch; print('Python', sys.version.split()[0], 'torch', torch.__version__)"
        print(run(python, "-c", say).strip(), flush=True)
        attempt(place, python, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
