"""Files compressed with Zstandard, read as streams."""

import io
import os
from typing import IO, Any

from elmo_fast.errors import require

_BLOCK = 1 << 17


class DamagedZstandard(Exception):
    """The bytes are not Zstandard's, were changed, or end within a frame."""


def open_zstandard(path: str | os.PathLike[str]) -> IO[bytes]:
    """The unpacked bytes of a .zst file, of one frame or several. Raises MissingExtraError, OSError.

    Its reads raise DamagedZstandard.
    """
    return io.BufferedReader(_Unpacked(path, require("zstandard", "zst", f"{os.fspath(path)}")), _BLOCK)


class _Unpacked(io.RawIOBase):
    """The library's own reader takes a file that ends within a frame for a complete one."""

    def __init__(self, path: str | os.PathLike[str], library: Any) -> None:
        self._file, self._library = open(path, "rb"), library  # noqa: SIM115 (closed with this)
        self._frame: Any = None  # None between two frames
        self._packed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer as far as one block goes; 0 at the end."""
        while not self._ready and self._has_packed():
            self._unpack()
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _has_packed(self) -> bool:
        self._packed = self._packed or self._file.read(_BLOCK)
        if not self._packed and self._frame is not None:
            raise DamagedZstandard("the file ends within a frame")
        return bool(self._packed)

    def _unpack(self) -> None:
        if self._frame is None:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            self._ready = self._frame.decompress(self._packed)
        except self._library.ZstdError as error:
            raise DamagedZstandard(str(error)) from error
        self._packed = b""
        if self._frame.eof:
            self._packed, self._frame = self._frame.unused_data, None

    def close(self) -> None:
        self._file.close()
        super().close()
