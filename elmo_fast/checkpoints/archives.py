"""Models in .zip and .tar.gz archives: unpacked once, into a temporary folder."""

import atexit
import functools
import gzip
import os
import tarfile
import tempfile
import zipfile
from pathlib import Path

from .._io.locks import new_temporary_folder, remove_temporary_folder
from ..errors import CheckpointError, read_failures_named

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a file with the name of an archive: *.zip, *.tar.gz, *.tgz, *.tar."""
    return os.fspath(path).lower().endswith(SUFFIXES) and os.path.isfile(path)


def unpacked(path: str | os.PathLike[str]) -> Path:
    """Return the folder of the files in an archive, unpacked when it is first asked for, or after it has changed.

    If the archive contains one folder and nothing else, it is that folder. The temporary folder is in TMPDIR, or where
    Python's tempfile puts it; the process removes it at its end, and what killed processes left there.
    Raises: CheckpointError naming the archive.
    """
    with read_failures_named(path), open(path, "rb") as file:
        status = os.fstat(file.fileno())
    return _unpacked(os.fspath(path), status.st_ino, status.st_size, status.st_mtime_ns)


@functools.cache
def _unpacked(path: str, *stamp: int) -> Path:
    try:
        work, lock = new_temporary_folder(Path(tempfile.gettempdir(), "elmo-fast-archive"))
    except OSError as error:
        raise CheckpointError(f"{path}: there is no temporary folder to unpack it ({error}); set TMPDIR") from error
    process, folder = os.getpid(), work / os.path.basename(path)

    def remove() -> None:
        if os.getpid() == process:  # a forked process does not own the folder
            remove_temporary_folder(work, lock)

    try:
        folder.mkdir()
        _unpack(path, folder)
    except Exception as error:  # a damaged archive can raise anything
        remove()
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(
            f"{path}: cannot be unpacked in {tempfile.gettempdir()} ({reason}); get the file again or, if there is too "
            "little space, set TMPDIR to another folder"
        ) from error
    atexit.register(remove)
    inside = [each for each in folder.iterdir() if each.name != "__MACOSX"]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _unpack(path: str, folder: Path) -> None:
    """Write the members of an archive into a folder, never outside of it."""
    if path.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        return
    packed = not path.lower().endswith(".tar")
    with gzip.open(path) if packed else open(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        tar.extractall(folder, filter="data")
        while stream.read(1 << 20):  # gzip compares its checksum at the end of the file, behind that of the tar
            pass
