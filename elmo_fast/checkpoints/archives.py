"""Models in .zip and .tar.gz archives: unpacked once, into a temporary folder, after all members are checked."""

import atexit
import contextlib
import lzma
import os
import shutil
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from ..errors import CheckpointError, read_failures_named
from ..files import PACKING_ERRORS
from ..sizes import size
from ..workplace import new_workplace, remove_workplace
from .archive_members import LONGEST_READ, Member, members_of

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")
# What an archive may hold unpacked. The largest published model takes 4 GB with its softmax and optimizer.
MOST_BYTES, MOST_MEMBERS = 16 << 30, 10_000
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    *PACKING_ERRORS,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
_opening = threading.Lock()
_folders: dict[tuple[str, int, int, int], Path] = {}
_named: dict[Path, str] = {}  # a folder -> the archive, as it was named last


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a file with the name of an archive: *.zip, *.tar.gz, *.tgz, *.tar."""
    return os.fspath(path).lower().endswith(SUFFIXES) and os.path.isfile(path)


def unpacked(path: str | os.PathLike[str]) -> Path:
    """The folder of the files in an archive, unpacked when it is first asked for; the process removes it at its end.

    If the archive contains one folder and nothing else, it is that folder. The temporary folder is in TMPDIR, or where
    Python's tempfile puts it; what killed processes left there is removed.
    Raises: CheckpointError naming the archive and the member that is unsafe, too large or damaged.
    """
    with read_failures_named(path):
        found = os.stat(path)
    key = (os.path.realpath(path), found.st_ino, found.st_size, found.st_mtime_ns)
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
    work, lock = _temporary(path)
    try:
        folder = work / path.name
        _extract(path, folder)
    except BaseException:
        _remove(work, lock, os.getpid())
        raise
    atexit.register(_remove, work, lock, os.getpid())
    inside = [each for each in folder.iterdir() if each.name != "__MACOSX"]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _temporary(path: Path) -> tuple[Path, int]:
    try:
        return new_workplace(Path(tempfile.gettempdir(), "elmo-fast-archive"))
    except OSError as error:
        raise CheckpointError(f"{path}: there is no temporary folder to unpack it ({error}); set TMPDIR") from error


def _remove(work: Path, lock: int, process: int) -> None:
    """Removes a temporary folder; a forked process leaves it to the one that made it."""
    if os.getpid() == process:
        remove_workplace(work, lock)


def _extract(path: Path, folder: Path) -> None:
    """Writes the members of an archive into a new folder, after all of them are checked."""
    with read_failures_named(path), open(path, "rb"):
        pass
    name = ""
    try:
        with members_of(path) as members:
            checked = _checked(path, members, shutil.disk_usage(folder.parent).free)
            folder.mkdir()
            for member, place in checked:
                name = member.name
                _write(member, folder / place)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{path}: {name or 'the archive'} cannot be unpacked ({error.strerror or error})"
        ) from error
    except _DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        damaged = f"{name} in it is damaged" if name else "the archive is damaged, or none of this kind"
        raise CheckpointError(f"{path}: {damaged} ({reason}); get the file again") from error


def _checked(path: Path, members: Iterator[Member], free: int) -> list[tuple[Member, Path]]:
    """The members that are files, with their places; names and sizes are checked as the archive states them."""
    found: dict[Path, Member] = {}
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
        if member.kind == "file" and found.setdefault(place, member) is not member:
            raise CheckpointError(f"{path}: {member.name!r} is in it twice")
    return [(member, place) for place, member in found.items()]


def _write(member: Member, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with member.open() as source, open(target, "xb") as file:
        shutil.copyfileobj(source, file, LONGEST_READ)
        if file.tell() != member.size:
            raise EOFError(f"{file.tell():,} bytes of {member.size:,}")
