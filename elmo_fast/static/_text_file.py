"""Text files of vectors: a word and its numbers a line, parted by blanks; word2vec's begin with rows and width."""

import warnings
from collections.abc import Sequence
from typing import IO

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.static._bytes import Parsed, decoded, encoded, header_of, is_number, reading, writing

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
    matrix = np.empty((limit or 0, width), np.float32)
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
    lines = block.rstrip().split(b"\n") if block.strip() else []
    matrix = np.empty((len(lines), width), np.float32)
    words = []
    for row, line in enumerate(lines):
        line = line.rstrip()
        word, _, numbers = line.partition(b" ")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                values = np.fromstring(numbers, np.float32, sep=" ")
            except (DeprecationWarning, ValueError):
                values = np.empty(0, np.float32)
        if len(values) != width or not word:
            word, values = _with_blanks(path, line, width, first_line + row)
        matrix[row] = values
        words.append(word)
    return words, matrix


def _with_blanks(path: str, line: bytes, width: int, number: int) -> tuple[bytes, npt.NDArray[np.float32]]:
    """A word that holds blanks itself (". . ." in GloVe's files), and its numbers: the last ones of the line."""
    fields = line.replace(b"\t", b" ").split(b" ")
    word, numbers = fields[:-width], fields[-width:]
    if not word or not word[0] or not all(map(is_number, numbers)) or (len(word) > 1 and is_number(word[-1])):
        raise ElmoFastError(
            f"{path}, line {number}: {len(fields) - 1} fields after the word; a word and {width} numbers are wanted"
        )
    return b" ".join(word), np.array([float(value) for value in numbers], np.float32)


def write_with_header(path: str, words: Sequence[str], matrix: npt.NDArray[np.float32]) -> None:
    """word2vec's text."""
    _write(path, words, matrix, header=f"{len(matrix)} {matrix.shape[1]}\n".encode())


def write_bare(path: str, words: Sequence[str], matrix: npt.NDArray[np.float32]) -> None:
    """GloVe's text."""
    _write(path, words, matrix, header=b"")


def _write(path: str, words: Sequence[str], matrix: npt.NDArray[np.float32], header: bytes) -> None:
    data = encoded(words, "text")
    with writing(path) as stream:
        stream.write(header)
        for word, row in zip(data, matrix, strict=True):
            stream.write(b" ".join([word, *(str(value).encode() for value in row)]) + b"\n")
