"""A cache of the vectors of every token of some sentences, checked whenever it is read.

safetensors: `offsets` [sentences + 1] int64 (where each sentence's tokens begin), `checks` [L, blocks] uint64 (the sum
of each block of rows, as integers, modulo 2^64), `vectors` [L, N, D] float32 or float16; the header says what the
vectors were made from.
"""

import contextlib
import hashlib
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import replacing
from elmo_fast.token_files.safetensors_file import layout

Rows = npt.NDArray[Any]
FAMILY = "elmo_fast.token_vectors"
FORMAT = f"{FAMILY} 2"
# A block of rows stays in a core's cache while it is checked and used.
BLOCK_BYTES = 1 << 20
_STORED = {"F32": "float32", "F16": "float16"}


class DamagedFile(ElmoFastError):
    """A cache that is not what was written, or that an older version wrote."""


class CacheFile:
    """An open cache.

    path: what `writing_cache_file` wrote. Raises DamagedFile if it is truncated, changed or of an older version,
    ElmoFastError if it is another kind of file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        about, arrays, dtype, shape = _read(self.path)
        self.made_from, self.offsets = about.get("made_from", ""), arrays["offsets"]
        self._checks, self._sha256 = arrays["checks"], about.get("sha256")
        # The vectors are the last tensor of the file.
        start = os.path.getsize(self.path) - math.prod(shape) * dtype.itemsize
        self.vectors: Rows = (
            np.memmap(self.path, dtype, "r", start, shape) if math.prod(shape) else np.empty(shape, dtype)
        )
        layers, tokens, width = shape
        self.block_rows = rows_of_a_block(dtype, width)
        if about.get("crc32") != _crc(self._checks, self.offsets):
            raise DamagedFile(f"{self.path}: damaged: its offsets or checks are not what was written")
        if about.get("made_from_crc32") != _text_crc(self.made_from):
            raise DamagedFile(f"{self.path}: damaged: what it was made from is not what was written")
        if self._checks.shape != (layers, -(-tokens // self.block_rows)) or self.offsets[-1:].tolist() != [tokens]:
            raise DamagedFile(f"{self.path}: damaged: its offsets or checks are those of other vectors")

    def check_of(self, layer: int) -> Callable[[int, Rows], None]:
        """A function of a block's number and its `block_rows` rows; it raises DamagedFile if they have changed."""

        def check(block: int, rows: Rows) -> None:
            if _sum(rows) != self._checks[layer, block]:
                raise DamagedFile(
                    f"{self.path}: damaged: vectors of layer {layer} from token {block * self.block_rows} on"
                )

        return check

    def check_all(self) -> None:
        """Compares all vectors with the digest of a file that was written with one. Raises: DamagedFile."""
        with open(self.path, "rb") as file:
            file.seek(os.path.getsize(self.path) - self.vectors.nbytes)
            if self._sha256 != hashlib.file_digest(file, "sha256").hexdigest():
                raise DamagedFile(f"{self.path}: damaged: its vectors are not those that were written")


class CacheWriter:
    """Takes the vectors of sentence after sentence, in any order."""

    def __init__(self, file: Any, start: int, offsets: npt.NDArray[np.int64], shape: tuple[int, int, int], dtype: Any):
        self._file, self._start, self._offsets, self._shape, self._dtype = file, start, offsets, shape, np.dtype(dtype)
        self._rows = rows_of_a_block(self._dtype, shape[2])
        self.checks = np.zeros((shape[0], -(-shape[1] // self._rows)), np.uint64)

    def write(self, sentence: int, vectors: Rows) -> None:
        """The vectors of a sentence's tokens, [L, n, D]."""
        begin, end = int(self._offsets[sentence]), int(self._offsets[sentence + 1])
        layers, tokens, width = self._shape
        if vectors.shape != (wanted := (layers, end - begin, width)):
            raise ValueError(f"vectors of sentence {sentence} must have shape {wanted}; got {vectors.shape}")
        for layer, rows in enumerate(np.ascontiguousarray(vectors, self._dtype)):
            self._file.seek(self._start + self._dtype.itemsize * width * (layer * tokens + begin))
            self._file.write(rows.data)
            sums = _integers(rows).sum(1, dtype=np.uint64)
            np.add.at(self.checks[layer], np.arange(begin, end) // self._rows, sums)


@contextlib.contextmanager
def writing_cache_file(
    path: str | os.PathLike[str],
    lengths: Sequence[int],
    layers: int,
    width: int,
    made_from: str,
    *,
    dtype: Any = np.float32,
    digest: bool = False,
) -> Iterator[CacheWriter]:
    """A new cache, at `path` once all sentences are written. Its disk space is reserved first.

    lengths: tokens of each sentence; made_from: what the vectors depend on, for the reader; digest: also store a
    SHA-256 of all vectors, for `check_all`. Raises OSError: the disk is full, the folder cannot be written.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])
    shape = layers, int(offsets[-1]), width
    tensors: dict[str, tuple[Any, tuple[int, ...]]] = {
        "offsets": (np.int64, offsets.shape),
        "checks": (np.uint64, (layers, -(-shape[1] // rows_of_a_block(dtype, width)))),
        "vectors": (dtype, shape),
    }
    about = {"format": FORMAT, "made_from": made_from, "crc32": "0" * 8, "made_from_crc32": _text_crc(made_from)}
    about |= {"sha256": "0" * 64} if digest else {}
    planned = layout(tensors, about)
    with replacing(path) as temporary, open(temporary, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, planned.end)
        writer = CacheWriter(file, planned.starts["vectors"], offsets, shape, dtype)
        yield writer
        about["crc32"] = _crc(writer.checks, offsets)
        if digest:
            file.seek(planned.starts["vectors"])
            about["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        file.write(layout(tensors, about).header + offsets.tobytes() + writer.checks.tobytes())


def rows_of_a_block(dtype: Any, width: int) -> int:
    """How many rows are checked together."""
    return max(1, BLOCK_BYTES // (np.dtype(dtype).itemsize * width))


def _read(path: str) -> tuple[dict[str, str], dict[str, Rows], np.dtype[Any], tuple[int, int, int]]:
    """Metadata, the small arrays, and the dtype and shape of the vectors; safetensors checks that the file is whole."""
    from safetensors import SafetensorError, safe_open

    with open(path, "rb") as file:
        begin = file.read(1 << 12)
    if FAMILY.encode() not in begin:
        raise ElmoFastError(f"{path}: is no file of token vectors; name another, or remove it")
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise DamagedFile(f"{path}: written by an older version")
            arrays = {name: file.get_tensor(name) for name in ("offsets", "checks")}
            vectors = file.get_slice("vectors")
            dtype, shape = _STORED.get(vectors.get_dtype()), tuple(vectors.get_shape())
    except SafetensorError as error:
        raise DamagedFile(f"{path}: damaged: {error}") from error
    if dtype is None or len(shape) != 3:
        raise DamagedFile(f"{path}: damaged: its header is not what was written")
    return about, arrays, np.dtype(dtype), shape


def _text_crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _integers(rows: Rows) -> npt.NDArray[Any]:
    """The rows' bits, as the widest integers that fit into a row."""
    bytes_of_row = rows.shape[1] * rows.itemsize
    return rows.view(
        next(kind for kind in (np.uint64, np.uint32, np.uint16) if not bytes_of_row % np.dtype(kind).itemsize)
    )


def _sum(rows: Rows) -> int:
    """A checksum fast enough to be computed in every query; errors change it unless they cancel out."""
    return int(_integers(rows).sum(dtype=np.uint64))


def _crc(checks: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(offsets).data, zlib.crc32(np.ascontiguousarray(checks).data)):08x}"
