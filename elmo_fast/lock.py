"""Locks between processes: files that the system unlocks when a process ends, however it ends."""

import contextlib
import fcntl
import os
import pathlib
import socket
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType

from elmo_fast.errors import ElmoFastError

LOCK_FILE = ".lock"


def hold(handle: int, *, wait: bool) -> bool:
    """Locks an open file; whether it is this process's now. OSError where files cannot be locked."""
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

    Where files cannot be locked all are let in.
    """
    handle = locked(path, lambda holder: waiting())
    try:
        yield
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            os.close(handle)


class FolderLock:
    """While open, the folder belongs to this process; others are refused. The system releases it when the process ends.

    argument: the user's name for the folder; does: what runs there, as the refusal says it; beside: lock a file beside
    the folder, removed at the end, because the folder itself is created or replaced.

    held: whether the file system supports locks. Raises ElmoFastError naming the process that holds the folder.
    """

    def __init__(
        self, folder: pathlib.Path, argument: str = "save_dir", does: str = "trains", *, beside: bool = False
    ) -> None:
        self.folder, self._argument, self._does, self._beside = folder, argument, does, beside
        self.path = folder.with_name(f".{folder.name[:100]}{LOCK_FILE}") if beside else folder / LOCK_FILE

    def __enter__(self) -> "FolderLock":
        self._made = not self._beside and not self.folder.exists()
        if not self._beside:
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._handle = locked(self.path, self._refuse)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, os.fspath(self.folder)) from error
        self.held = self._handle is not None
        if not self.held:
            warnings.warn(
                f"{self.folder}: this file system has no locks; make sure that no second process {self._does} there",
                stacklevel=2,
            )
        return self

    def _refuse(self, holder: str) -> None:
        raise ElmoFastError(
            f"{self._argument} {self.folder}: {holder} {self._does} there now; wait until it ends, or give another "
            f"{self._argument}"
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is None:
            return
        # A run that failed before it wrote anything leaves no folder.
        left = self._made and kind is not None and os.listdir(self.folder) == [self.path.name]
        if left or self._beside:
            self.path.unlink(missing_ok=True)
        if left:
            self.folder.rmdir()
        os.close(self._handle)
