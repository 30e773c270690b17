"""A copy of the checkout with the extension built once, and each mutant's files compiled and linked anew beside it."""

import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# -O1: the fewer seconds to compile. One instruction set: bits do not depend on which of csrc/common/simd.h is taken.
OPTIONS = ["-O1", "-g0", *(["-march=x86-64-v3", "-Dtarget_clones(...)="] if platform.machine() == "x86_64" else [])]


class Refused(Exception):
    """The compiler refused a mutant."""


def output_of(*command: str, cwd: pathlib.Path, **more: str) -> str:
    """What a command prints; RuntimeError with its words where it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **more})
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)[:300]}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


class Whole:
    """The tracked files of the checkout in `folder`, with an extension of their own, built once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.tree = folder.resolve()
        self.changed = False  # since the last time
        for name in filter(None, output_of("git", "ls-files", "-z", cwd=ROOT).split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                if not (self.tree / name).is_file() or (self.tree / name).read_bytes() != (ROOT / name).read_bytes():
                    shutil.copyfile(ROOT / name, self.tree / name)
                    self.changed = True
        output_of(
            sys.executable, "setup.py", "-q", "build_ext", "--inplace",
            cwd=self.tree, ELMO_FAST_REQUIRE_NATIVE="1", CMAKE_CXX_COMPILER_LAUNCHER="",
            CMAKE_ARGS=shlex.quote(f"-DELMO_FAST_CXX_OPTIONS={';'.join(OPTIONS)}"),
        )  # fmt: skip
        output_of(sys.executable, "-m", "compileall", "-q", "elmo_fast", "tests", cwd=self.tree)
        (self.build,) = (self.tree / "build").glob("cmake-*")
        (self.extension,) = (self.tree / "elmo_fast").glob("_C*.so")
        self.commands: dict[str, str] = {}  # by object
        for line in output_of("ninja", "-t", "commands", cwd=self.build).splitlines():
            if found := re.search(r" -o (\S+\.cpp\.o) -c ", line):
                self.commands[found[1]] = line
            elif self.extension.name in line:
                self.link = line
        self.sources: dict[str, set[str]] = {}  # of an object
        for part in output_of("ninja", "-t", "deps", cwd=self.build).split("\n\n"):
            first, *paths = part.splitlines() or [""]
            read = [pathlib.Path(os.path.normpath(self.build / path.strip())) for path in paths]
            own = {path.relative_to(self.tree).as_posix() for path in read if path.is_relative_to(self.tree)}
            self.sources[first.partition(": ")[0]] = own

    def objects_of(self, file: str) -> list[str]:
        """The objects that are made of a file."""
        return [name for name in self.commands if file in self.sources.get(name, ())]


class Copy:
    """The sources of `whole`, of which one file at a time is changed; the objects of the others are linked."""

    def __init__(self, whole: Whole, folder: pathlib.Path) -> None:
        self.whole, self.tree = whole, folder.resolve()
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(whole.tree, self.tree, ignore=shutil.ignore_patterns("build"))
        (self.tree / "build").mkdir()
        self.extension = self.tree / whole.extension.relative_to(whole.tree)

    def rebuilt(self, file: str) -> bool:
        """Compiles what is made of `file` as it now stands and links; False where every object is as it was."""
        link, changed = self.whole.link, False
        same_names = f" -fmacro-prefix-map={self.tree}={self.whole.tree} -o "
        for i, name in enumerate(self.whole.objects_of(file)):
            new = self.tree / "build" / f"{i}.o"
            command = self.whole.commands[name].replace(f"{self.whole.tree}/csrc", f"{self.tree}/csrc")
            command = command.replace(f" -o {name} ", f"{same_names}{new} ")
            self._run(command.replace(f"-MF {name}.d", "-MF /dev/null"))
            if new.read_bytes() != (self.whole.build / name).read_bytes():
                link, changed = link.replace(f" {name} ", f" {new} "), True
        if changed:
            self.extension.unlink()
            self._run(re.sub(r" -o \S+\.so ", f" -o {self.extension} ", link))
            if not self.extension.is_file():  # the tests would skip what needs it, and pass
                raise RuntimeError(f"{self.extension} was not linked by: {self.whole.link[:300]}")
        return changed

    def _run(self, command: str) -> None:
        if subprocess.run(command, shell=True, cwd=self.whole.build, capture_output=True).returncode:
            raise Refused

    def put_back(self) -> None:
        """The extension without a mutant."""
        self.extension.unlink(missing_ok=True)
        shutil.copyfile(self.whole.extension, self.extension)
