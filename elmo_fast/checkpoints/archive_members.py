"""The members of .zip and .tar archives, alike, as the archive states them; nothing is unpacked yet."""

import contextlib
import functools
import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

# tarfile reads the long names of a tar whole, whatever size it states for them.
LONGEST_READ = 1 << 20


class Member(NamedTuple):
    """A file or folder of an archive: its name there, its size unpacked, its kind ("file", "folder" or another)."""

    name: str
    size: int
    kind: str
    open: Callable[[], IO[bytes]]


@contextlib.contextmanager
def members_of(path: Path) -> Iterator[Iterator[Member]]:
    """The members of an open archive, whose name says which kind it is."""
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            yield (
                Member(each.filename, each.file_size, _kind_in_zip(each), functools.partial(archive.open, each))
                for each in archive.infolist()
            )
    else:
        packed = not path.name.lower().endswith(".tar")
        with _GzipFile(path) if packed else open(path, "rb") as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            yield _members_of_tar(tar, stream)


def _members_of_tar(tar: tarfile.TarFile, stream: io.BufferedIOBase) -> Iterator[Member]:
    for each in tar:
        yield Member(each.name, each.size, _kind_in_tar(each), functools.partial(tar.extractfile, each))  # type: ignore[arg-type]
    # gzip compares its checksum at the end of the file, which is behind the end of the tar.
    if stream.read(LONGEST_READ) and stream.read(1):
        raise tarfile.ReadError("more than 1 MiB behind its end")


class _GzipFile(gzip.GzipFile):
    """A gzip file that refuses to decompress much at once."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= LONGEST_READ:
            raise tarfile.ReadError("a header of more than 1 MiB")
        return super().read(size)


def _kind_in_zip(member: zipfile.ZipInfo) -> str:
    mode = member.external_attr >> 16
    if member.flag_bits & 1:
        return "an encrypted file"
    if member.filename.endswith("/"):  # is_dir fails for a name that is empty
        return "folder"
    return "file" if stat.S_IFMT(mode) in (0, stat.S_IFREG) else "a link or a device"


def _kind_in_tar(member: tarfile.TarInfo) -> str:
    return "folder" if member.isdir() else "file" if member.isreg() else "a link or a device"
