"""A file of the vectors of every token of a corpus, each of length 1; every query checks what it reads of it.

safetensors: `vectors` [L, N, D] float32, `offsets` [sentences + 1] int64 (where each sentence's tokens begin), `checks`
[L, blocks] uint64 (the sum of each block of rows, as integers, modulo 2^64), and in its header what it was made from.
"""

import contextlib
import dataclasses
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.files import replacing
from elmo_fast.json_files import parsed
from elmo_fast.static.neighbours import Nearest, nearest, rows_of_a_block

Matrix = npt.NDArray[np.float32]
FORMAT = "elmo_fast.token_vectors 1"


class DamagedFile(ElmoFastError):
    """A file of token vectors that is not what was written."""


class TokenFile:
    """An open file of token vectors.

    path: what `writing_token_file` wrote
    Raises DamagedFile where it is cut off or changed, ElmoFastError where it is another kind of file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        header, start = _header(self.path)
        about = header["__metadata__"]
        self.made_from = about.made_from
        self._vectors = self._mapped(start, header["vectors"], np.float32, 3)
        self._checks = np.array(self._mapped(start, header["checks"], np.uint64, 2))
        self.offsets = np.array(self._mapped(start, header["offsets"], np.int64, 1))
        self._rows = rows_of_a_block(self._vectors.shape[2])
        if about.crc32 != _crc(self._checks, self.offsets):
            raise DamagedFile(f"{self.path}: damaged: its offsets or checks are not what was written")
        if about.made_from_crc32 not in (None, _text_crc(self.made_from)):
            raise DamagedFile(f"{self.path}: damaged: what it was made from is not what was written")
        layers, tokens, _ = self.shape
        if self._checks.shape != (layers, -(-tokens // self._rows)) or self.offsets[-1:].tolist() != [tokens]:
            raise DamagedFile(f"{self.path}: damaged: its offsets or checks are those of other vectors")

    def _mapped(self, start: int, about: "_Entry", dtype: Any, axes: int) -> Any:
        begin, *ends = about["data_offsets"] or [-1]
        shape = about["shape"]
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if len(shape) != axes or min(shape) < 0 or begin < 0 or ends != [begin + size]:
            raise DamagedFile(f"{self.path}: damaged: its header is not what was written")
        if (end := start + begin + size) > os.path.getsize(self.path):
            raise DamagedFile(f"{self.path}: cut off: {os.path.getsize(self.path)} of {end} bytes")
        return np.memmap(self.path, dtype, "r", start + begin, tuple(shape)) if size else np.empty(shape, dtype)

    @property
    def shape(self) -> tuple[int, int, int]:
        """L, N, D."""
        layers, tokens, width = self._vectors.shape
        return layers, tokens, width

    def nearest(self, layer: int, queries: Matrix, topn: int) -> Nearest:
        """As `nearest`, among the tokens' vectors of a layer; DamagedFile where one of them is not what was written."""

        def check(block: int, rows: Matrix) -> None:
            if _sum(rows) != self._checks[layer, block]:
                raise DamagedFile(f"{self.path}: damaged: vectors of layer {layer} from token {block * self._rows} on")

        return nearest(self._vectors[layer], queries, topn, unit=True, check=check, block_rows=self._rows)


class TokenWriter:
    """Takes the vectors of sentence after sentence, in any order."""

    def __init__(self, file: Any, start: int, offsets: npt.NDArray[np.int64], layers: int, width: int) -> None:
        self._file, self._start, self._offsets, self._width = file, start, offsets, width
        self._rows = rows_of_a_block(width)
        self.checks = np.zeros((layers, -(-int(offsets[-1]) // self._rows)), np.uint64)

    def write(self, sentence: int, vectors: Matrix) -> None:
        """The tokens' vectors of a sentence, [L, n, D], each of length 1 (or 0)."""
        begin, end = int(self._offsets[sentence]), int(self._offsets[sentence + 1])
        if vectors.shape != (len(self.checks), end - begin, self._width):
            raise ValueError(f"sentence {sentence}: {vectors.shape}")
        for layer, rows in enumerate(np.ascontiguousarray(vectors, np.float32)):
            self._file.seek(self._start + 4 * self._width * (layer * int(self._offsets[-1]) + begin))
            self._file.write(rows.data)
            sums = _integers(rows).sum(1, dtype=np.uint64)
            np.add.at(self.checks[layer], np.arange(begin, end) // self._rows, sums)


@contextlib.contextmanager
def writing_token_file(
    path: str | os.PathLike[str], lengths: Sequence[int], layers: int, width: int, made_from: str
) -> Iterator[TokenWriter]:
    """A new file in place of `path` once all sentences are written.

    lengths: tokens of each sentence; made_from: what the vectors depend on, for whoever opens the file
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])
    tokens = int(offsets[-1])
    sizes = {
        "offsets": ("I64", [len(offsets)], offsets.nbytes),
        "checks": (
            "U64",
            [layers, -(-tokens // rows_of_a_block(width))],
            8 * layers * -(-tokens // rows_of_a_block(width)),
        ),
        "vectors": ("F32", [layers, tokens, width], 4 * layers * tokens * width),
    }
    about = {"format": FORMAT, "made_from": made_from, "crc32": "0" * 8, "made_from_crc32": _text_crc(made_from)}
    header: dict[str, Any] = {"__metadata__": about}
    at = 0
    for name, (dtype, shape, size) in sizes.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    start = 8 + len(_packed(header))
    with replacing(path) as temporary, open(temporary, "r+b") as file:
        file.truncate(start + at)
        writer = TokenWriter(file, start + header["vectors"]["data_offsets"][0], offsets, layers, width)
        yield writer
        header["__metadata__"]["crc32"] = _crc(writer.checks, offsets)
        text = _packed(header)
        file.seek(0)
        file.write(len(text).to_bytes(8, "little") + text + offsets.tobytes() + writer.checks.tobytes())


def _packed(header: dict[str, Any]) -> bytes:
    """Padded so that the arrays after it lie as memory maps want them."""
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % 64)


class _Entry(TypedDict):
    shape: list[int]
    data_offsets: list[int]


@dataclasses.dataclass(frozen=True)
class _About:
    """made_from_crc32: None in files of older versions."""

    format: str
    made_from: str
    crc32: str
    made_from_crc32: str | None = None


_Header = TypedDict("_Header", {"__metadata__": _About, "vectors": _Entry, "checks": _Entry, "offsets": _Entry})


def _header(path: str) -> tuple[_Header, int]:
    """The header of a safetensors file of token vectors, and where its data begin."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        text = file.read(size) if size < 1 << 24 else b""
    if f'"format": "{FORMAT}"'.encode() not in text:
        raise ElmoFastError(f"{path}: is no file of token vectors; name another, or remove it")
    try:
        header = parsed(text, _Header, "header")
    except CheckpointError as error:
        raise DamagedFile(f"{path}: damaged: its header is not what was written ({error})") from error
    return header, 8 + size


def _text_crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _integers(rows: Matrix) -> npt.NDArray[Any]:
    return rows.view(np.uint64 if rows.shape[1] % 2 == 0 else np.uint32)


def _sum(rows: Matrix) -> int:
    """Fast enough to look at every number of every query; wrong numbers change it unless they cancel out."""
    return int(_integers(rows).sum(dtype=np.uint64))


def _crc(checks: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(offsets).data, zlib.crc32(np.ascontiguousarray(checks).data)):08x}"
