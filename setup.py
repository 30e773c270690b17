"""Builds elmo_fast._C with CMake and ninja; without a compiler the package installs all the same and says why it is slower."""

import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).parent.resolve()


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    if done.returncode:
        sys.stderr.write(done.stderr)
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()]
        raise RuntimeError(f"`{' '.join(command[:2])}` failed: {errors[0].strip() if errors else done.returncode}")


class CMakeBuild(build_ext):
    def build_extension(self, ext: Extension) -> None:
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        note = target.parent / "_build_failure.txt"
        note.unlink(missing_ok=True)
        try:
            self.compile(target)
        except (RuntimeError, OSError, ImportError) as error:
            if os.environ.get("ELMO_FAST_REQUIRE_NATIVE") == "1":
                raise
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"{error}\n", encoding="utf-8")
            self.announce(f"elmo_fast._C was not built: {error}; the plain torch path will be used", level=3)

    def compile(self, target: pathlib.Path) -> None:
        import pybind11
        import torch

        build = HERE / "build" / f"cmake-{sys.implementation.cache_tag}-torch{torch.__version__.split('+')[0]}"
        run(
            [
                "cmake",
                f"-S{HERE}",
                f"-B{build}",
                "-GNinja",
                "-DCMAKE_BUILD_TYPE=Release",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path};{pybind11.get_cmake_dir()}",
                f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={target.parent}",
            ]
        )
        run(["cmake", "--build", str(build)])


setup(ext_modules=[Extension("elmo_fast._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
