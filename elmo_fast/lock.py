"""One run per folder."""

import fcntl
import os
import pathlib
import socket
import warnings
from types import TracebackType

from elmo_fast.errors import ElmoFastError

LOCK_FILE = ".lock"


class FolderLock:
    """While open, the folder is this process's: another one is refused. The system frees it when the process ends.

    Raises ElmoFastError naming the process that holds it.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / LOCK_FILE

    def __enter__(self) -> "FolderLock":
        self._made = not self.path.parent.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(self._handle)
            raise ElmoFastError(
                f"save_dir {self.path.parent}: {holder} trains there now; wait for its end, or give another save_dir"
            ) from error
        except OSError as error:
            warnings.warn(
                f"{self.path.parent}: this file system has no locks ({error.strerror}); see to it that no second "
                "run is started there",
                stacklevel=2,
            )
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made and kind is not None and os.listdir(self.path.parent) == [self.path.name]:
            # A run that failed before it wrote anything leaves no folder behind.
            self.path.unlink()
            self.path.parent.rmdir()
        os.close(self._handle)
