"""Where a case puts its files, and the valid files that it damages: made once a process, in folders of its own."""

import atexit
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable

_kept: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def root() -> pathlib.Path:
    """The folder of this process."""
    folder = tempfile.TemporaryDirectory(prefix="elmo_fast_fuzz_")
    _kept.append(folder)
    atexit.register(folder.cleanup)
    return pathlib.Path(folder.name)


def fresh() -> pathlib.Path:
    """An empty folder for a case; what the one before left is removed."""
    folder = root() / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def copied(valid: pathlib.Path) -> pathlib.Path:
    """`fresh()` with a copy of a valid file or folder in it."""
    target = fresh() / valid.name
    (shutil.copytree if valid.is_dir() else shutil.copyfile)(valid, target)
    return target


def valid(make: Callable[[pathlib.Path], pathlib.Path]) -> Callable[[], pathlib.Path]:
    """Makes a function of (an empty folder) -> the valid file or folder in it into one that makes it once."""

    @functools.cache
    def once() -> pathlib.Path:
        folder = root() / "valid" / f"{make.__module__}.{make.__name__}"
        folder.mkdir(parents=True)
        return make(folder)

    return once
