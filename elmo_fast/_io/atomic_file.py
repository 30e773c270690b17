"""Files that are either complete or absent: written in a temporary folder next to them, then renamed."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import stat
from collections.abc import Iterator
from typing import IO, Any

from elmo_fast._io.locks import LOCK_FILE, temporary_folder
from elmo_fast._runtime.progress import StopRequest
from elmo_fast.errors import ElmoFastError


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield an empty file in a folder next to `path`; rename it to `path` if the block succeeds, else removes it.

    The bytes are flushed to disk before the rename, so no error, signal or crash leaves a partial file under `path`; an
    existing file stays unchanged until then. Partial files of killed processes are removed. Raises ElmoFastError when
    `path` is not a regular file, and OSError when the folder cannot be written.
    """
    target = pathlib.Path(os.path.realpath(path))
    refuse_other_kinds(target, path)
    with temporary_folder(target, path) as work:
        temporary = work / target.name
        temporary.touch()
        yield temporary
        temporary.chmod(usual_mode(target, work))
        flush(temporary)
        os.replace(temporary, target)
        flush(target.parent)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a new file that takes the place of `path` if the block succeeds (`atomic_file`).

    Gzip if the name ends in .gz.
    """
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield file


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, complete or not at all (`atomic_file`)."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any, indent: int = 1) -> None:
    """Write a value as JSON text, as `writing` does."""
    with writing(path) as file:
        file.write((json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode())


def refuse_other_kinds(target: pathlib.Path, shown: str | os.PathLike[str]) -> None:
    """Raise ElmoFastError if `target` exists and is not a regular file; `shown` is its name in the message."""
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device or pipe"
        raise ElmoFastError(f"cannot write {os.fspath(shown)!r}: it is {kind}, not a regular file")


@contextlib.contextmanager
def hdf5_written(path: os.PathLike[str], shown: str | os.PathLike[str]) -> Iterator[tuple[Any, "WrittenBytes"]]:
    """Yield a new h5py.File and its bytes; shown: its name in errors.

    HDF5 crashes with a segmentation fault when it closes a file on a full disk. Here it never sees the error: the
    second value keeps it, and its `check()`, or leaving the block, raises it.
    """
    import h5py

    with StopRequest() as request:
        written = WrittenBytes(path, os.fspath(shown), request)
        try:
            with h5py.File(written, "w") as file:
                yield file, written
            written.check()
        finally:
            written.close()


class WrittenBytes(io.FileIO):
    """A file for HDF5 that keeps an error for `check()`, so that HDF5 does not see it.

    request: Ctrl-C and SIGTERM wait for `check()` too: an exception in HDF5's callbacks into Python is lost.
    """

    def __init__(self, path: os.PathLike[str], shown: str, request: StopRequest) -> None:
        super().__init__(path, "r+")
        self._shown = shown
        self._error: OSError | None = None
        self._request = request

    def check(self) -> None:
        """Raise the OSError of a failed write, or the exception of a signal that arrived meanwhile."""
        if number := self._request.signal:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, self._shown) from self._error

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        try:
            while view:
                view = view[super().write(view) or 0 :]
        except OSError as error:
            self._error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = error
            return size


def flush(path: str | os.PathLike[str]) -> None:
    """Flush the content of a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replaces(output: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Whether writing `output` would overwrite `path`: the same file, also through a link, or a file in that folder.

    "-" is standard input.
    """
    read = 0 if path == "-" else path
    if not (os.path.exists(output) and os.path.exists(read)):
        return os.path.realpath(output) == os.path.realpath(path)
    if os.path.isdir(output) and not os.path.isdir(read) and path != "-":
        return pathlib.Path(output).resolve() in pathlib.Path(path).resolve().parents
    return os.path.samefile(output, read)


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Return the bytes free on the disk where `path` is or is to be written."""
    place = pathlib.Path(os.path.realpath(path))
    return shutil.disk_usage(next(each for each in (place, *place.parents) if each.exists())).free


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def usual_mode(target: pathlib.Path, work: pathlib.Path) -> int:
    """Return the permissions of `target` or, if it does not exist, those that the umask gives to a new file.

    work: a temporary_folder, whose lock is a new file (reading the umask would change it for all threads).
    """
    return stat.S_IMODE(os.stat(target if target.exists() else work / LOCK_FILE).st_mode)
