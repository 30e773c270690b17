"""Files that are either complete or absent: written in a temporary folder next to them, which a lock protects.

A lock is one of the system's (filelock): it ends with the process that holds it, however that ends. What dead processes
left is removed by the next one that writes there.
"""

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from elmo_fast.errors import ElmoFastError, require
from elmo_fast.progress import StopRequest

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK_FILE = ".lock"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_SUFFIX = ".partial"
_LEFTOVER = re.compile(r"\..+\.(old|[a-z0-9_]{8})\.partial", re.DOTALL)
# Files that are unpacked while they are read: suffix -> first bytes, with which no text in UTF-8 begins.
_PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
# Packed bytes that are unpacked at once: at Zstandard's highest ratio to 128 MiB.
_STEP = 1 << 12
# Bytes in a line of text; all readers refuse a longer one. text8, the 100 MB of word2vec's examples, is one line.
LONGEST_LINE = 1 << 28


class DamagedZstandard(Exception):
    """The bytes are not Zstandard's, were changed, or end within a frame."""


# What damaged packed files raise while they are read.
PACKING_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile, DamagedZstandard)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield an empty file in a folder next to `path`; rename it to `path` if the block succeeds, else removes it.

    The bytes are flushed to disk before the rename, so no error, signal or crash leaves a partial file under `path`; an
    existing file stays unchanged until then. Partial files of killed processes are removed. Raises ElmoFastError when
    `path` is not a regular file, and OSError when the folder cannot be written.
    """
    target = pathlib.Path(os.path.realpath(path))
    refuse_other_kinds(target, path)
    with workplace(target, path) as work:
        temporary = work / target.name
        temporary.touch()
        yield temporary
        temporary.chmod(usual_mode(target, work))
        flush(temporary)
        os.replace(temporary, target)
        flush(target.parent)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a new file that takes the place of `path` if the block succeeds (`replacing`).

    Gzip if the name ends in .gz.
    """
    with replacing(path) as temporary, open(temporary, "wb") as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield file


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield the bytes of a file, unpacked if its first bytes or its name say that it is gzip or Zstandard.

    Reading damaged packed data raises one of PACKING_ERRORS, which `damage_of` names.
    """
    with open(path, "rb") as file:
        packing = _packing(path, file)
        if packing == ".zst":
            library = require("zstandard", "zst", f"{os.fspath(path)}")
            with io.BufferedReader(_UnpackedZstandard(file, library), 1 << 17) as stream:
                yield stream
        elif packing == ".gz":
            with gzip.open(file) as stream:
                yield stream  # type: ignore[misc]
        else:
            yield file


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether `reading` unpacks the file."""
    with open(path, "rb") as file:
        return _packing(path, file) is not None


def _packing(path: str | os.PathLike[str], file: io.BufferedReader) -> str | None:
    head = file.peek(4)
    by_content = (suffix for suffix, magic in _PACKED.items() if head.startswith(magic))
    by_name = (suffix for suffix in _PACKED if os.fspath(path).endswith(suffix))
    return next(by_content, next(by_name, None))


def damage_of(error: BaseException) -> str:
    """Return the data that one of PACKING_ERRORS is about: "damaged gzip data"."""
    return f"damaged {'Zstandard' if isinstance(error, DamagedZstandard) else 'gzip'} data"


class _UnpackedZstandard(io.RawIOBase):
    """The unpacked bytes of one frame or several; reads raise DamagedZstandard.

    The library's own reader takes a file that ends within a frame for a complete one.
    """

    def __init__(self, file: IO[bytes], library: Any) -> None:
        self._parts, self._ready = self._unpacked(file, library), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as one part goes; 0 at the end."""
        while not self._ready and (part := next(self._parts, None)) is not None:
            self._ready = memoryview(part)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    @staticmethod
    def _unpacked(file: IO[bytes], library: Any) -> Iterator[bytes]:
        frame, data = None, b""  # None between two frames
        # A part of any file takes little memory: a block of at most 128 KiB has four bytes or more.
        while data := data or file.read(256):
            frame = frame or library.ZstdDecompressor().decompressobj()
            try:
                part = frame.decompress(data)
            except library.ZstdError as error:
                raise DamagedZstandard(str(error)) from error
            yield part
            data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
        if frame is not None:
            raise DamagedZstandard("the file ends within a frame")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, complete or not at all (`replacing`)."""
    with replacing(path) as temporary:
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
def hdf5_replacing(path: str | os.PathLike[str]) -> Iterator[tuple[Any, "WrittenBytes"]]:
    """Yield a new h5py.File and its bytes; the file takes the place of `path` as in `replacing`.

    As in `hdf5_written`, the bytes' `check()` raises what writing them raised.
    """
    with replacing(path) as temporary, hdf5_written(temporary, path) as opened:
        yield opened


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
    """A file for HDF5 that keeps its first error for `check()` and drops everything written after it.

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
            while view and self._error is None:
                view = view[super().write(view) or 0 :]
        except OSError as error:
            self._error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        try:
            return super().truncate(size) if self._error is None else size
        except OSError as error:
            self._error = error
            return size


def write_at(file: io.FileIO, place: int, data: Any) -> None:
    """Write all of `data` at a place of an unbuffered file."""
    whole = memoryview(data)
    view = whole.cast("B") if whole.nbytes else memoryview(b"")  # an empty one cannot be cast
    while view:
        done = os.pwrite(file.fileno(), view, place)
        view, place = view[done:], place + done


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


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def workplace(target: pathlib.Path, shown: str | os.PathLike[str] | None = None) -> Iterator[pathlib.Path]:
    """Yield a temporary folder next to `target`, removed when the block ends, as are those of dead processes.

    It is locked while the block runs, and other users cannot read it. Errors about a full disk name `target`, as
    `shown` to the user.
    """
    try:
        folder, lock = new_workplace(target)
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
        remove_workplace(folder, lock)


def remove_folder(folder: pathlib.Path) -> None:
    """Remove a folder that readers look for: at once from under its name, then its files."""
    # What cannot be removed now is a leftover; a temporary one would need room, which a full disk lacks.
    hidden = folder.with_name(f"{_prefix(folder)}old{_SUFFIX}")
    shutil.rmtree(hidden, ignore_errors=True)
    shutil.rmtree(folder.rename(hidden), ignore_errors=True)


def new_workplace(target: pathlib.Path) -> tuple[pathlib.Path, "BaseFileLock"]:
    """Return a new temporary folder next to `target` and its lock; remove those of dead processes."""
    remove_leftovers_of(target)
    while True:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent))
        lock = _lock(folder / LOCK_FILE)
        # Until it is locked, another process may take it for a dead one's, and remove it.
        with contextlib.suppress(FileNotFoundError):
            (folder / LOCK_FILE).touch()
            # If files cannot be locked, leftovers of killed processes stay: they cannot be recognized.
            _locked(lock, wait=True)
            if (folder / LOCK_FILE).exists():
                return folder, lock
        lock.release()


def remove_workplace(folder: pathlib.Path, lock: "BaseFileLock") -> None:
    """Remove what `new_workplace` made, the lock first: on NFS an open file stays where it is removed."""
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers_of(target: pathlib.Path) -> None:
    """Remove what dead processes that wrote `target` left."""
    remove_leftovers(target.parent, _prefix(target))


def remove_leftovers(folder: pathlib.Path, prefix: str = ".") -> None:
    """Remove what dead processes left in a folder under names that begin with `prefix`.

    That is a `workplace` (mkdtemp's eight characters) or what `remove_folder` was removing; no user's folder.
    """
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix) and _LEFTOVER.fullmatch(entry.name)]
        for path in (folder / name for name in names):
            # Links are not followed: another user of the folder could point one at any folder of the user.
            if path.is_dir() and not path.is_symlink():
                lock = _lock(path / LOCK_FILE)
                with contextlib.suppress(OSError):
                    if _locked(lock, wait=False):
                        remove_workplace(path, lock)


def _prefix(target: pathlib.Path) -> str:
    return f".{target.name[:100]}."


def usual_mode(target: pathlib.Path, work: pathlib.Path) -> int:
    """Return the permissions of `target` or, if it does not exist, those that the umask gives to a new file.

    work: a workplace, whose lock is a new file (reading the umask would change it for all threads).
    """
    return stat.S_IMODE(os.stat(target if target.exists() else work / LOCK_FILE).st_mode)


def _lock(path: pathlib.Path) -> "BaseFileLock":
    from filelock import FileLock  # as slow to import as this package without torch

    return FileLock(path, thread_local=False)


def _locked(lock: "BaseFileLock", *, wait: bool) -> bool:
    """Acquire the lock; return False if the file system has no locks. TimeoutError if another process holds it."""
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except NotImplementedError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


@contextlib.contextmanager
def only_one(path: pathlib.Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time into the block; `waiting` is called before waiting for another one.

    If files cannot be locked, all are let in.
    """
    lock = _lock(path)
    try:
        _locked(lock, wait=False)
    except TimeoutError:
        waiting()
        _locked(lock, wait=True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def folder_lock(
    folder: pathlib.Path, argument: str = "save_dir", does: str = "trains", *, next_to: bool = False
) -> Iterator[None]:
    """In the block the folder belongs to this process; others get an error. The system unlocks it if the process ends.

    argument: the user's name for the folder; does: what runs there, for the error message; next_to: lock a file next to
    the folder, removed at the end, because the folder itself is created or replaced.

    Raises ElmoFastError naming the process that holds the folder; warns if the file system has no locks.
    """
    path = folder.with_name(f".{folder.name[:100]}{LOCK_FILE}") if next_to else folder / LOCK_FILE
    if not next_to:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.parent.is_dir():  # filelock would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(folder))
    lock = _lock(path)
    try:
        if _locked(lock, wait=False):
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        else:
            warning = f"{folder}: this file system has no locks; make sure that no second process {does} there"
            warnings.warn(warning, stacklevel=3)
    except TimeoutError:
        holder = path.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
        raise ElmoFastError(
            f"{argument} {folder}: {holder} {does} there now; wait until it ends, or give another {argument}"
        ) from None
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(folder)) from error
    try:
        yield
    finally:
        if next_to:
            path.unlink(missing_ok=True)
        lock.release()
