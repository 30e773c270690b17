"""Builds elmo_fast._C with CMake and ninja; without a compiler the package installs all the same: a note says why."""

import os
import pathlib
import runpy
import shlex
import shutil
import subprocess
import sys

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

if int(setuptools.__version__.partition(".")[0]) < 77:  # a new environment of Python 3.11 brings setuptools 65
    raise SystemExit(
        f"elmo_fast is built with setuptools 77 or newer, and this is {setuptools.__version__}: "
        'pip install "setuptools>=77"'
    )

HERE = pathlib.Path(__file__).parent.resolve()
NOTE = "_build_failure.txt"  # read by elmo_fast/ops/_native.py
LOG = HERE / "build" / "failure.log"
SOURCES = runpy.run_path(str(HERE / "elmo_fast" / "ops" / "_sources.py"))


def tool(name: str) -> str:
    """The program of that name in the folder of this Python, where pip puts cmake and ninja, else in PATH."""
    beside = pathlib.Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else shutil.which(name) or name


def first_error(output: str) -> str:
    """The first error in what a build tool printed; CMake puts the reason on the lines below its heading."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if line.startswith("CMake Error"):
            end = next((j for j, each in enumerate(lines[i + 1 : i + 5], i + 2) if each.endswith(".")), i + 2)
            return " ".join(lines[i:end])
        if "error:" in line:
            return line
    return lines[-1] if lines else "it printed nothing"


def advice(error: str, log: pathlib.Path) -> str:
    """What to do about a build that failed with this error."""
    if any(words in error for words in ("CMAKE_CXX_COMPILER", "CMAKE_MAKE_PROGRAM", "No module named", "No such file")):
        missing = "a C++20 compiler" if "CMAKE_CXX_COMPILER" in error else "cmake, ninja, pybind11 and torch"
        return f"install {missing}"
    if "Could NOT find Python" in error or "Python.h" in error:
        return "install the headers of this Python (Debian: python3-dev)"
    if any(words in error for words in ("CXX20", "cxx_std_20", "c++20", "c++2a", "gnu++20", "gnu++2a")):
        return "install a newer C++ compiler, one that knows C++20"
    return f"read what failed in {log}, correct it" if log.is_file() else "correct that"


def lasting_note(error: str) -> str:
    """What failed and what to do, without the folder of the build: pip builds in one that is gone afterwards."""
    return f"{error.replace(f'{HERE}{os.sep}', '')}\n{advice(error, pathlib.Path())}\n"


def run(*command: str, log: pathlib.Path | None = None) -> None:
    """Runs a build tool, shows its lines as they come, and raises RuntimeError with its first error.

    log: where all its lines are written if it fails.
    """
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as tool:
        for line in tool.stdout:  # type: ignore[union-attr]
            print(line, end="", flush=True)
            lines.append(line)
    if any("interrupted by user" in line for line in lines[-5:]):  # says ninja: nothing that plain torch should hide
        raise SystemExit("the build of elmo_fast._C was interrupted: run the same command again, and it resumes")
    if tool.returncode:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("".join(lines), encoding="utf-8")
        raise RuntimeError(f"{pathlib.Path(command[0]).name} failed: {first_error(''.join(lines))}")


class CMakeBuild(build_ext):
    """Compiles the extension, or leaves a note in its place; with ELMO_FAST_REQUIRE_NATIVE=1 a failure is an error."""

    def build_extension(self, ext: Extension) -> None:
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        note = target.parent / NOTE
        note.unlink(missing_ok=True)
        LOG.unlink(missing_ok=True)
        self.digest = SOURCES["digest_of_sources"](HERE)  # before: what changes meanwhile may not be in the build
        try:
            self.compile(target)
        except (RuntimeError, OSError, ImportError) as error:
            target.unlink(missing_ok=True)  # an older build must not pass for this one
            if os.environ.get("ELMO_FAST_REQUIRE_NATIVE") == "1":
                raise
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(lasting_note(str(error)), encoding="utf-8")
            what_to_do = advice(str(error), LOG)
            print(f"elmo_fast._C was not built: {error}; {what_to_do}; plain torch runs instead", file=sys.stderr)

    def compile(self, target: pathlib.Path) -> None:
        """Configures and builds into the folder of `target`; needs torch, pybind11, cmake and ninja to be installed."""
        import pybind11
        import torch

        build = HERE / "build" / f"cmake-torch{torch.__version__}-{sys.implementation.cache_tag}"
        run(
            tool("cmake"),
            f"-S{HERE}",
            f"-B{build}",
            "-GNinja",
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DTORCH_INSTALL_PREFIX={pathlib.Path(torch.__file__).parent}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={build / 'linked'}",  # one for all targets: another would link again
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
            log=LOG,
        )
        run(tool("cmake"), "--build", str(build), log=LOG)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / "linked" / target.name, target)

    def copy_extensions_to_source(self) -> None:
        """An in-place build puts the extension among the package's files, or the note in place of it."""
        built, here = pathlib.Path(self.build_lib) / "elmo_fast" / NOTE, HERE / "elmo_fast" / NOTE
        digest = HERE / SOURCES["DIGEST"]
        here.unlink(missing_ok=True)
        digest.unlink(missing_ok=True)
        here.with_name("_C.ops.so").unlink(missing_ok=True)  # of older versions
        if built.is_file():
            for ext in self.extensions:
                (HERE / self.get_ext_filename(ext.name)).unlink(missing_ok=True)
            shutil.copyfile(built, here)
        else:
            digest.write_text(self.digest, encoding="utf-8")
        super().copy_extensions_to_source()


if __name__ == "__main__":
    setup(
        ext_modules=[Extension("elmo_fast._C", sources=[], optional=True)],
        cmdclass={"build_ext": CMakeBuild},
    )
