"""Text files, plain, gzip or Zstandard, read alike; by their first bytes or their name."""

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

from elmo_fast.errors import ElmoFastError, require

# Files that are unpacked while they are read: suffix -> first bytes, with which no text in UTF-8 begins.
_PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
# Bytes in a line of text; all readers refuse a longer one. text8, the 100 MB of word2vec's examples, is one line.
LONGEST_LINE = 1 << 28


class DamagedZstandard(Exception):
    """The bytes are not Zstandard's, were changed, or end within a frame."""


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield the bytes of a file, unpacked if its first bytes or its name say that it is gzip or Zstandard.

    Damaged packed data is an ElmoFastError in the block, or when it ends.
    """
    with open(path, "rb") as file:
        packing = _packing(path, file)
        try:
            if packing == ".zst":
                library = require("zstandard", "zst", f"{os.fspath(path)}")
                with io.BufferedReader(_UnpackedZstandard(file, library), 1 << 17) as stream:
                    yield stream
            elif packing == ".gz":
                with gzip.open(file) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield file
        except (EOFError, zlib.error, gzip.BadGzipFile, DamagedZstandard) as error:
            raise ElmoFastError(f"{os.fspath(path)}: damaged {packing} data: {error}") from error


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether `reading` unpacks the file."""
    with open(path, "rb") as file:
        return _packing(path, file) is not None


def _packing(path: str | os.PathLike[str], file: io.BufferedReader) -> str | None:
    head = file.peek(4)
    by_content = (suffix for suffix, magic in _PACKED.items() if head.startswith(magic))
    by_name = (suffix for suffix in _PACKED if os.fspath(path).endswith(suffix))
    return next(by_content, next(by_name, None))


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
