"""Lines of word vectors: a word and its D numbers, as bytes to arrays and back; in C++ if that is built."""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, shortened

Matrix = npt.NDArray[np.float32]
# A matrix [N, D], where each line's word starts and ends [N, 2], and the first bad line's number, start and end, which
# are -1, 0, 0 if all lines are good.
Lines = tuple[Matrix, npt.NDArray[np.int64], tuple[int, int, int]]
BLANKS = rb"[ \t]+"
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = float(np.finfo(np.float32).max) * (1 + 2.0**-25)  # from here on the nearest float32 is infinity


def read_vector_text(
    data: bytes, dimension: int, source: str = "the text", first_line: int = 1
) -> tuple[list[bytes], Matrix]:
    r"""Read complete lines: the words, and their vectors [N, D] float32.

        the 0.418 0.24968 -0.41242 ...

    Numbers are rounded to the nearest float32. A word may contain blanks ("to name@domain.com" in GloVe's files): it is
    everything before the last D numbers. Blanks are spaces and tabs; lines end with \n or \r\n, which blanks may
    precede; empty lines at the end are ignored.

    source, first_line: name of the text and number of its first line, for errors
    Raises ElmoFastError with the number of a line that is not a word and D finite numbers.
    """
    from elmo_fast.ops import _native  # torch is slow to load, and binary files do without it

    read = read_in_python if _native.C is None else _native.C.read_vector_text
    matrix, places, (line, begin, end) = read(np.frombuffer(data, np.uint8), dimension)
    words = [data[begin:end] for begin, end in places.tolist()] if line < 0 else []
    if b"\r" in data and (row := next((row for row, word in enumerate(words) if b"\r" in word), None)) is not None:
        raise ElmoFastError(
            f"{source}, line {first_line + row}: a line break (\\r) within a word; end lines with \\n or \\r\\n"
        )
    if line >= 0:
        content = shortened(data[begin:end].decode(errors="replace"))
        raise ElmoFastError(
            f"{source}, line {first_line + line}: wanted a word and {dimension} finite numbers of float32; "
            f"found {content!r}"
        )
    return words, matrix


def write_vector_text(words: Sequence[bytes], matrix: Matrix) -> npt.NDArray[np.uint8]:
    r"""Return lines that `read_vector_text` reads back bit by bit: numbers have the fewest digits that allow it.

    words: N, each `is_read_back`; matrix: [N, D] float32, finite
    """
    from elmo_fast.ops import _native

    write = write_in_python if _native.C is None else _native.C.write_vector_text
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    lines: npt.NDArray[np.uint8] = write(np.frombuffer(b"".join(words), np.uint8), ends, np.ascontiguousarray(matrix))
    return lines


def is_number(field: bytes) -> bool:
    """Tell whether a field is decimal and finite as a float32."""
    return _NUMBER.fullmatch(field) is not None and abs(float(field)) < _LARGEST


def is_read_back(word: bytes) -> bool:
    """Tell whether a line's reader finds this word: with no line break, blank at an end, or number after a blank."""
    parts = re.split(BLANKS, word)
    return all(parts) and not re.search(rb"[\r\n]", word) and (len(parts) == 1 or not is_number(parts[-1]))


def read_in_python(data: npt.NDArray[np.uint8], dimension: int) -> Lines:
    """Define reading: split each line at blanks, convert each number by float()."""
    rows: list[list[float]] = []
    places: list[tuple[int, int]] = []
    begin = 0
    contents = data.tobytes().split(b"\n")
    while contents and not _bare(contents[-1]):
        contents.pop()
    for number, content in enumerate(contents):
        line = _bare(content)
        fields = re.split(BLANKS, line)
        word, numbers = fields[:-dimension], fields[-dimension:]
        good = fields[0] and word and len(numbers) == dimension and all(map(is_number, numbers))
        if not good or (len(word) > 1 and is_number(word[-1])):
            return np.empty((0, dimension), np.float32), np.empty((0, 2), np.int64), (number, begin, begin + len(line))
        tail = re.search(BLANKS + BLANKS.join(map(re.escape, numbers)) + rb"\Z", line)
        assert tail is not None
        places.append((begin, begin + tail.start()))
        rows.append([float(field) for field in numbers])
        begin += len(content) + 1
    matrix = np.array(rows, np.float64).reshape(-1, dimension).astype(np.float32)
    return matrix, np.array(places, np.int64).reshape(-1, 2), (-1, 0, 0)


def write_in_python(words: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], matrix: Matrix) -> npt.NDArray[np.uint8]:
    """Define writing: str() of each number. words: end to end; ends: where each one ends."""
    starts = [0, *ends.tolist()]
    lines = [
        b" ".join([words[a:b].tobytes(), *(str(value).encode() for value in row)]) + b"\n"
        for a, b, row in zip(starts, starts[1:], matrix, strict=False)
    ]
    return np.frombuffer(b"".join(lines), np.uint8)


def _bare(line: bytes) -> bytes:
    """Return a line without its line break and the blanks before that."""
    return line.removesuffix(b"\r").rstrip(b" \t")
