"""A folder that appears under its name when it is whole, and what dead runs have left of theirs."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from elmo_fast.files import NO_ROOM, flush

_SUFFIX, _LOCK = ".partial", "lock"


@contextlib.contextmanager
def workplace(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder beside `target` to work in, which goes when the block ends; those of dead runs go before.

    A file in it is locked while the block runs: who can lock it knows that nobody is left.
    """
    _remove_leftovers(target)
    try:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent))
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(target)) from error
    try:
        with open(folder / _LOCK, "wb") as lock:
            # Where files cannot be locked, what a killed run has left stays there: `_dead` cannot lock it either.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    except OSError as error:
        # A write to an open file fails without a name.
        if error.filename is None and error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, os.fspath(target)) from error
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(new: pathlib.Path, target: pathlib.Path, work: pathlib.Path) -> None:
    """Gives the folder `new`, whose files are on the disk, the name `target`; one that is there goes into `work`."""
    flush(new)
    old = work / "old"
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    flush(target.parent)


def _prefix(target: pathlib.Path) -> str:
    return f".{target.name[:100]}."


def _remove_leftovers(target: pathlib.Path) -> None:
    with os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_prefix(target))]
    for name in names:
        if name.endswith(_SUFFIX) and _dead(target.parent / name):
            shutil.rmtree(target.parent / name)


def _dead(folder: pathlib.Path) -> bool:
    try:
        with open(folder / _LOCK, "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
