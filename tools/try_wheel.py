"""Tries a wheel in a new virtual environment, of some Python and torch and no compiler.

python tools/try_wheel.py WHEEL --python python3.12 --torch 2.11.0

The environment gets that torch and the wheel with pip, and is removed at the end. In an empty folder, with nothing on
PATH but its own programs and a few of the system's, `elmo-fast info` must say that the native kernels run, `elmo-fast
check` must find no wrong result on the CPU, and README.md's lines must run.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Runs the lines of README.md of the checkout argv[1] in the current, empty folder, and compares what they print.
README = """
import os, pathlib, sys
import elmo_fast
assert "site-packages" in elmo_fast.__file__, f"{elmo_fast.__file__} is not the wheel's"
sys.path.append(sys.argv[1])
from tests.support import snippets, weights
folder = pathlib.Path.cwd()
snippets.environment = lambda: dict(os.environ)  # no checkout, as tests have it
sizes = {"cell": 1024, "proj": 128, "filters": snippets.ORIGINAL_FILTERS, "char_dim": 16, "n_highway": 1}
weights.make_weights(folder, **sizes, scale=0.5)
snippets.check(pathlib.Path(sys.argv[1], "README.md").read_text(encoding="utf-8"), "README.md", folder)
"""
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
    run(python, "-m", "venv", place)
    run(executable, "-m", "pip", "install", "-q", f"torch=={torch}")
    run(executable, "-m", "pip", "install", "-q", wheel)
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
    (readme := folder / "readme").mkdir()
    run(python, "-c", README, ROOT, env=variables, cwd=readme)
    print(f"check: {right}; README.md's lines run")


def main() -> int:
    """Makes the environment, and tries the wheel in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="which Python makes the environment")
    parser.add_argument("--torch", required=True, help="the version of torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        place = folder / "environment"
        attempt(place, installed(place, options.python, options.torch, options.wheel.resolve()), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
