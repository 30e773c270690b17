"""Models in .zip and .tar.gz archives: unpacked once, into a temporary folder, after all members are checked."""

import atexit
import contextlib
import functools
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from ..errors import CheckpointError, read_failures_named
from ..files import PACKING_ERRORS, new_workplace, remove_workplace
from ..memory import size

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")
# What an archive may hold unpacked. The largest published model takes 4 GB with its softmax and optimizer.
MOST_BYTES, MOST_MEMBERS = 16 << 30, 10_000
# tarfile reads the long names of a tar whole, whatever size it states for them.
_LONGEST_READ = 1 << 20
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, *PACKING_ERRORS, RuntimeError, ValueError)
_opening = threading.Lock()
_folders: dict[tuple[str, int, int, int], Path] = {}
_named: dict[Path, str] = {}  # a folder -> the archive, as it was named last


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a file with the name of an archive: *.zip, *.tar.gz, *.tgz, *.tar."""
    return os.fspath(path).lower().endswith(SUFFIXES) and os.path.isfile(path)


def unpacked(path: str | os.PathLike[str]) -> Path:
    """Return the folder of the files in an archive, unpacked when it is first asked for.

    The process removes it at its end.

    If the archive contains one folder and nothing else, it is that folder. The temporary folder is in TMPDIR, or where
    Python's tempfile puts it; what killed processes left there is removed.
    Raises: CheckpointError naming the archive and the member that is unsafe, too large or damaged.
    """
    with read_failures_named(path), open(path, "rb") as file:
        status = os.fstat(file.fileno())
    key = (os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns)
    with _opening:
        if key not in _folders:
            _folders[key] = _unpack(Path(path))
        _named[_folders[key]] = os.fspath(path)
        return _folders[key]


@contextlib.contextmanager
def archives_named() -> Iterator[None]:
    """In a CheckpointError of the block, the temporary folders of archives become the archives' paths."""
    try:
        yield
    except CheckpointError as error:
        text = str(error)
        for folder, archive in list(_named.items()):
            text = text.replace(os.fspath(folder), archive)
        if text == str(error):
            raise
        raise CheckpointError(text) from error


def _unpack(path: Path) -> Path:
    """Write the files of an archive into a new folder, after all of them are checked."""
    try:
        work, lock = new_workplace(Path(tempfile.gettempdir(), "elmo-fast-archive"))
    except OSError as error:
        raise CheckpointError(f"{path}: there is no temporary folder to unpack it ({error}); set TMPDIR") from error
    process, folder = os.getpid(), work / path.name

    def remove() -> None:
        """Forget the folder in a forked process: it belongs to the process that made it."""
        if os.getpid() == process:
            remove_workplace(work, lock)

    name = ""
    try:
        with _opened(path) as (members, extract):
            checked = _checked(path, members, shutil.disk_usage(work).free)
            folder.mkdir()
            for place, member in checked.items():
                name = member.name
                extract(member.of_archive, folder)
                if (actual := (folder / place).stat().st_size) != member.size:
                    raise EOFError(f"{actual:,} bytes of {member.size:,}")
    except BaseException as error:
        remove()
        if isinstance(error, OSError):
            what = f"{name or 'the archive'} cannot be unpacked ({error.strerror or error})"
        elif isinstance(error, _DAMAGED) and not isinstance(error, CheckpointError):
            reason = " ".join(str(error).split()) or type(error).__name__
            damaged = f"{name} in it is damaged" if name else "the archive is damaged, or none of this kind"
            what = f"{damaged} ({reason}); get the file again"
        else:
            raise
        raise CheckpointError(f"{path}: {what}") from error
    atexit.register(remove)
    inside = [each for each in folder.iterdir() if each.name != "__MACOSX"]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


class _Member(NamedTuple):
    """A file or folder of an archive: its name there, its size unpacked, its kind ("file", "folder" or another)."""

    name: str
    size: int
    kind: str
    of_archive: Any


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Iterator[_Member], Callable[[Any, Path], object]]]:
    """Yield the members of an archive as it states them, and what writes one of them into a folder."""
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            members = (_Member(each.filename, each.file_size, _kind_in_zip(each), each) for each in archive.infolist())
            yield members, archive.extract
    else:
        packed = not path.name.lower().endswith(".tar")
        with _GzipFile(path) if packed else open(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            yield _members_of_tar(tar, stream), functools.partial(tar.extract, filter="data")


def _members_of_tar(tar: tarfile.TarFile, stream: io.BufferedIOBase) -> Iterator[_Member]:
    for each in tar:
        kind = "folder" if each.isdir() else "file" if each.isreg() else "a link or a device"
        yield _Member(each.name, each.size, kind, each)
    # gzip compares its checksum at the end of the file, which is behind the end of the tar.
    if stream.read(_LONGEST_READ) and stream.read(1):
        raise tarfile.ReadError("more than 1 MiB behind its end")


class _GzipFile(gzip.GzipFile):
    """A gzip file that refuses to decompress much at once."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _LONGEST_READ:
            raise tarfile.ReadError("a header of more than 1 MiB")
        return super().read(size)


def _kind_in_zip(member: zipfile.ZipInfo) -> str:
    mode = member.external_attr >> 16
    if member.flag_bits & 1:
        return "an encrypted file"
    if member.filename.endswith("/"):  # is_dir fails for a name that is empty
        return "folder"
    return "file" if stat.S_IFMT(mode) in (0, stat.S_IFREG) else "a link or a device"


def _checked(path: Path, members: Iterator[_Member], free: int) -> dict[Path, _Member]:
    """Return the members that are files, by their places; names and sizes are checked as the archive states them."""
    files: dict[Path, _Member] = {}
    total = 0
    for count, member in enumerate(members):
        parts = PureWindowsPath(member.name).parts
        if ".." in parts or (parts and parts[0][-1] in "/\\:") or (member.kind == "file" and not parts):
            raise CheckpointError(f"{path}: {member.name!r} is a name outside the archive; it is not unpacked")
        if member.kind not in ("file", "folder"):
            raise CheckpointError(f"{path}: {member.name!r} is {member.kind}; only files and folders are unpacked")
        total += max(0, member.size)
        if total > min(MOST_BYTES, free) or count >= MOST_MEMBERS:
            raise CheckpointError(
                f"{path}: unpacked, it is too large from {member.name!r} on: {size(total)} in {count + 1:,} members; "
                f"at most {size(MOST_BYTES)} in {MOST_MEMBERS:,} are read, and {size(free)} are free in "
                f"{tempfile.gettempdir()} (TMPDIR names another folder)"
            )
        place = Path(*PurePosixPath(member.name).parts)
        if member.kind == "file" and files.setdefault(place, member) is not member:
            raise CheckpointError(f"{path}: {member.name!r} is in it twice")
    return files
