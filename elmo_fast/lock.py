"""Locks between processes: files that the system unlocks when a process ends, however it ends."""

import contextlib
import os
import pathlib
import socket
import warnings
from collections.abc import Callable, Iterator

from elmo_fast.errors import ElmoFastError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"


def hold(handle: int, *, wait: bool) -> bool:
    """Locks an open file; returns whether this process holds it now. OSError if files cannot be locked."""
    if fcntl is None:
        raise OSError("this system has no flock")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def locked(path: pathlib.Path, waiting: Callable[[str], None]) -> int | None:
    """Creates and locks the file `path` and returns its handle; None, and no file, if files cannot be locked.

    waiting: called with the name of the lock's owner before waiting for it; its exceptions pass through.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not hold(handle, wait=False):
                waiting(os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process")
                hold(handle, wait=True)
        except OSError:
            os.close(handle)
            path.unlink(missing_ok=True)
            return None
        except BaseException:
            os.close(handle)
            raise
        # The previous owner may have removed its locked file; another process may then hold a new one.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
                return handle
        os.close(handle)


@contextlib.contextmanager
def only_one(path: pathlib.Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Lets one process at a time into the block; `waiting` is called before waiting for another one.

    If files cannot be locked, all are let in.
    """
    handle = locked(path, lambda holder: waiting())
    try:
        yield
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            os.close(handle)


@contextlib.contextmanager
def folder_lock(
    folder: pathlib.Path, argument: str = "save_dir", does: str = "trains", *, beside: bool = False
) -> Iterator[pathlib.Path]:
    """In the block the folder belongs to this process; others are refused. The system unlocks it if the process dies.

    argument: the user's name for the folder; does: what runs there, for the error message; beside: lock a file beside
    the folder, removed at the end, because the folder itself is created or replaced.

    Yields the path of the locked file. Raises ElmoFastError naming the process that holds the folder; warns if the file
    system has no locks.
    """

    def refuse(holder: str) -> None:
        raise ElmoFastError(
            f"{argument} {folder}: {holder} {does} there now; wait until it ends, or give another {argument}"
        )

    path = folder.with_name(f".{folder.name[:100]}{LOCK_FILE}") if beside else folder / LOCK_FILE
    made = not beside and not folder.exists()
    if not beside:
        folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = locked(path, refuse)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(folder)) from error
    if handle is None:
        warnings.warn(
            f"{folder}: this file system has no locks; make sure that no second process {does} there", stacklevel=3
        )
        yield path
        return
    failed = True
    try:
        yield path
        failed = False
    finally:
        # A run that failed before it wrote anything leaves no folder.
        unused = made and failed and os.listdir(folder) == [path.name]
        if unused or beside:
            path.unlink(missing_ok=True)
        os.close(handle)
        if unused:
            with contextlib.suppress(OSError):  # another process has begun there
                folder.rmdir()
