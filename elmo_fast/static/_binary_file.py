"""word2vec's binary files: a line with rows and width, then each word, a space, and its floats as in memory."""

from collections.abc import Sequence
from typing import IO

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import writing
from elmo_fast.static._bytes import Parsed, decoded, encoded, header_of, reading

CHUNK_BYTES = 1 << 24
LONGEST_WORD = 1 << 12
ROWS_AT_ONCE = 1024


def read(path: str, limit: int | None) -> Parsed:
    """All words and vectors, or the first `limit`."""
    with reading(path) as stream:
        rows, width = header_of(path, stream, smallest=4)
        count = rows if limit is None else min(rows, limit)
        matrix = np.empty((count, width), np.dtype("<f4"))
        words, rest = _filled(path, stream, matrix, rows)
        if count == rows and (rest.strip() or stream.read(CHUNK_BYTES).strip()):
            raise ElmoFastError(f"{path}: goes on after the {rows} vectors that its first line promises")
    return Parsed(decoded(path, words), matrix.astype(np.float32, copy=False))


def _filled(path: str, stream: IO[bytes], matrix: npt.NDArray[np.float32], rows: int) -> tuple[list[bytes], bytes]:
    """Fills the matrix row by row; returns the words, and bytes that were read after the last row."""
    words: list[bytes] = []
    count, width = matrix.shape
    size, data, at = 4 * width, b"", 0
    while len(words) < count:
        space = data.find(b" ", at)
        start = space + 1
        if space < 0 or start + size > len(data):
            more = stream.read(CHUNK_BYTES)
            if not more:
                raise ElmoFastError(
                    f"{path}: cut off: {len(words)} whole vectors, where its first line promises {rows}"
                )
            data, at = data[at:] + more, 0
            space = data.find(b" ", 0, LONGEST_WORD)
            if space < 0 and len(data) > LONGEST_WORD:
                raise ElmoFastError(
                    f"{path}: damaged: no word ends within {LONGEST_WORD} bytes after {len(words)} vectors"
                )
            continue
        matrix[len(words)] = np.frombuffer(data, "<f4", width, start)
        words.append(data[at:space].lstrip(b"\n"))
        if b"\n" in words[-1]:
            raise ElmoFastError(f"{path}: damaged: the word after {len(words) - 1} vectors has a line end in it")
        at = start + size
    return words, data[at:]


def write(path: str, words: Sequence[str], matrix: npt.NDArray[np.float32]) -> None:
    """Writes them as word2vec.c does, with a line end after each vector, which every reader takes or skips."""
    data = encoded(words, "word2vec's binary files")
    with writing(path) as stream:
        stream.write(f"{len(matrix)} {matrix.shape[1]}\n".encode())
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            block = np.ascontiguousarray(matrix[first : first + ROWS_AT_ONCE], "<f4")
            parts = [part for word, row in zip(data[first:], block, strict=False) for part in (word, b" ", row, b"\n")]
            stream.write(b"".join(parts))
