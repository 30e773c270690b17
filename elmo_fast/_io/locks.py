"""Temporary folders and locks, which end with the process that holds them, however it ends.

A lock is one of the system's (filelock). What dead processes left is removed by the next one that writes there.
"""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    from filelock import BaseFileLock


LOCK_FILE = ".lock"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_SUFFIX = ".partial"
_LEFTOVER = re.compile(r"\..+\.(old|[a-z0-9_]{8})\.partial", re.DOTALL)


@contextlib.contextmanager
def temporary_folder(target: pathlib.Path, shown: str | os.PathLike[str] | None = None) -> Iterator[pathlib.Path]:
    """Yield a temporary folder next to `target`, removed when the block ends, as are those of dead processes.

    It is locked while the block runs, and other users cannot read it. Errors about a full disk name `target`, as
    `shown` to the user.
    """
    try:
        folder, lock = new_temporary_folder(target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(shown or target)) from error
    try:
        yield folder
    except OSError as error:
        # A write to an open file fails without a name; a name in the temporary folder says nothing to the user.
        if error.errno in NO_ROOM and os.fspath(error.filename or folder).startswith(os.fspath(folder)):
            raise OSError(error.errno, error.strerror, os.fspath(shown or target)) from error
        raise
    finally:
        remove_temporary_folder(folder, lock)


def remove_folder(folder: pathlib.Path) -> None:
    """Remove a folder that readers look for: at once from under its name, then its files."""
    # What cannot be removed now is a leftover; a temporary one would need room, which a full disk lacks.
    hidden = folder.with_name(f"{prefix_of(folder)}old{_SUFFIX}")
    shutil.rmtree(hidden, ignore_errors=True)
    shutil.rmtree(folder.rename(hidden), ignore_errors=True)


def new_temporary_folder(target: pathlib.Path) -> tuple[pathlib.Path, "BaseFileLock"]:
    """Return a new temporary folder next to `target` and its lock; remove those of dead processes."""
    remove_leftovers(target.parent, prefix_of(target))
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix_of(target), suffix=_SUFFIX, dir=target.parent))
        # Until it is locked, another process may take it for a dead one's, and remove it.
        with contextlib.suppress(FileNotFoundError):
            (folder / LOCK_FILE).touch()
            # If files cannot be locked, leftovers of killed processes stay: they cannot be recognized.
            lock, _ = _locked(folder / LOCK_FILE, wait=True)
            if (folder / LOCK_FILE).exists():
                return folder, lock
            lock.release()


def remove_temporary_folder(folder: pathlib.Path, lock: "BaseFileLock") -> None:
    """Remove what `new_temporary_folder` made, the lock first: on NFS an open file stays where it is removed."""
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: pathlib.Path, prefix: str = ".") -> None:
    """Remove what dead processes left in a folder under names that begin with `prefix`.

    That is a `temporary_folder` (mkdtemp's eight characters) or what `remove_folder` was removing; no user's folder.
    """
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix) and _LEFTOVER.fullmatch(entry.name)]
        for path in (folder / name for name in names):
            # Links are not followed: another user of the folder could point one at any folder of the user.
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):
                    lock, is_locked = _locked(path / LOCK_FILE, wait=False)
                    if is_locked:
                        remove_temporary_folder(path, lock)


def prefix_of(target: pathlib.Path) -> str:
    """Return how the names of the temporary folders of `target` begin."""
    return f".{target.name[:100]}."


def _locked(path: pathlib.Path, *, wait: bool) -> tuple["BaseFileLock", bool]:
    """Return a file's lock; False if the file system has no locks. TimeoutError if another process holds it."""
    from filelock import FileLock  # as slow to import as this package without torch

    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except NotImplementedError:
        return lock, False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return lock, False
    return lock, True


@contextlib.contextmanager
def file_lock(path: pathlib.Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time into the block; `waiting` is called before waiting for another one.

    If files cannot be locked, all are let in.
    """
    try:
        lock, _ = _locked(path, wait=False)
    except TimeoutError:
        waiting()
        lock, _ = _locked(path, wait=True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def folder_lock(folder: pathlib.Path) -> Iterator[None]:
    """In the block the folder belongs to this process; others get an error. The system unlocks it if the process ends.

    Raises ElmoFastError naming the process that holds the folder; warns if the file system has no locks.
    """
    path, is_new = folder / LOCK_FILE, not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock, is_locked = _locked(path, wait=False)
        if is_locked:
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        else:
            warning = f"{folder}: this file system has no locks; make sure that no second process trains there"
            warnings.warn(warning, stacklevel=3)
    except TimeoutError:
        holder = path.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
        raise ElmoFastError(f"save_dir {folder}: {holder} trains there now; wait, or give another save_dir") from None
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(folder)) from error
    try:
        yield
    finally:
        if is_new and os.listdir(folder) == [LOCK_FILE]:  # what failed before it wrote anything leaves no folder
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()
