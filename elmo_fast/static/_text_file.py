"""Text files of vectors: a word and its numbers a line, parted by blanks; word2vec's begin with rows and width."""

import warnings
from collections.abc import Sequence
from typing import IO

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import writing
from elmo_fast.static._bytes import Parsed, decoded, encoded, header_of, is_number, reading

CHUNK_BYTES = 1 << 24
ROWS_AT_ONCE = 1024


def read_with_header(path: str, limit: int | None) -> Parsed:
    """word2vec's text."""
    with reading(path) as stream:
        rows, width = header_of(path, stream, smallest=2)
        count = rows if limit is None else min(rows, limit)
        words, matrix, rest = _lines(path, stream, width, count, first_line=2)
        if len(words) < count:
            raise ElmoFastError(f"{path}: cut off: {len(words)} vectors, where its first line promises {rows}")
        if count == rows and (rest.strip() or stream.read(CHUNK_BYTES).strip()):
            raise ElmoFastError(f"{path}: goes on after the {rows} vectors that its first line promises")
    return Parsed(decoded(path, words), matrix)


def read_bare(path: str, limit: int | None) -> Parsed:
    """GloVe's text; the numbers at the end of the first line tell the width."""
    with reading(path) as stream:
        fields = stream.readline().split()
    width = 0
    while width < len(fields) - 1 and is_number(fields[-1 - width]):
        width += 1
    if not width:
        raise ElmoFastError(f"{path}, line 1: must be a word and its numbers")
    with reading(path) as stream:
        words, matrix, _ = _lines(path, stream, width, limit, first_line=1)
    return Parsed(decoded(path, words), matrix)


def _lines(
    path: str, stream: IO[bytes], width: int, limit: int | None, first_line: int
) -> tuple[list[bytes], npt.NDArray[np.float32], bytes]:
    """Words and vectors of all lines, or of the first `limit`, and bytes that were read after them."""
    words: list[bytes] = []
    matrix = np.empty((0, width), np.float32)
    rest, more = b"", True
    while more and (limit is None or len(words) < limit):
        new = stream.read(CHUNK_BYTES)
        more, data = bool(new), rest + new
        whole = len(data) if not more else data.rfind(b"\n") + 1
        if limit is not None:
            whole = _end_of_line(data, limit - len(words), whole)
        block, rest = data[:whole], data[whole:]
        if not block:
            continue
        found, numbers = _parsed(path, block, width, first_line)
        first_line += block.count(b"\n")
        if len(words) + len(found) > len(matrix):
            # In place, where memory for large arrays is moved without copying.
            matrix.resize((max(len(words) + len(found), len(matrix) * 3 // 2), width), refcheck=False)
        matrix[len(words) : len(words) + len(found)] = numbers
        words += found
    matrix.resize((len(words), width), refcheck=False)
    return words, matrix, rest


def _end_of_line(data: bytes, line: int, most: int) -> int:
    """Where the line of that number ends, from 1; `most` where there are not so many before it."""
    at = 0
    for _ in range(line):
        at = data.find(b"\n", at, most) + 1
        if not at:
            return most
    return at


def _parsed(path: str, block: bytes, width: int, first_line: int) -> tuple[list[bytes], npt.NDArray[np.float32]]:
    """Words and vectors of whole lines; blank lines at their end are left out."""
    import torch

    from elmo_fast.static.vector_text import read_vector_text

    with warnings.catch_warnings():
        # The bytes are read, not written: that they cannot be is no concern here.
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        data = torch.frombuffer(block, dtype=torch.uint8)
    matrix, places = read_vector_text(data, width, source=path, first_line=first_line)
    return [block[begin:end] for begin, end in places.tolist()], matrix.numpy()


def write_with_header(path: str, words: Sequence[str], matrix: npt.NDArray[np.float32]) -> None:
    """word2vec's text."""
    data = encoded(words, "word2vec's text")
    _write(path, data, matrix, header=f"{len(matrix)} {matrix.shape[1]}\n".encode())


def write_bare(path: str, words: Sequence[str], matrix: npt.NDArray[np.float32]) -> None:
    """GloVe's text, whose words may hold blanks."""
    _write(path, encoded(words, None), matrix, header=b"")


def _write(path: str, words: list[bytes], matrix: npt.NDArray[np.float32], header: bytes) -> None:
    import torch

    from elmo_fast.static.vector_text import write_vector_text

    with writing(path) as stream:
        stream.write(header)
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            some = words[first : first + ROWS_AT_ONCE]
            together = torch.frombuffer(bytearray(b"".join(some)), dtype=torch.uint8)
            ends = torch.tensor([len(word) for word in some]).cumsum(0)
            block = np.array(matrix[first : first + ROWS_AT_ONCE], np.float32, order="C")
            stream.write(write_vector_text(together, ends, torch.from_numpy(block)).numpy().data)
