"""word2vec's files, binary and text, and GloVe's, which are word2vec's text without the first line; how a file's format
is detected."""

import contextlib
import gzip
import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast import files
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import writing

SAFETENSORS = "safetensors"
GZIP = b"\x1f\x8b"
# Read from the start of a file to detect its format: more than a line of 50,000 numbers.
HEAD_BYTES = 1 << 20
HEADER = re.compile(rb"(\d{1,12}) (\d{1,9})[ \t]*\r?\n")
Matrix = npt.NDArray[np.float32]


class Parsed(NamedTuple):
    """The content of a file, in its order; a word may occur twice."""

    words: list[str]
    matrix: Matrix


@contextlib.contextmanager
def reading(path: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if it is gzip; ElmoFastError if that is damaged."""
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    try:
        with files.reading(path, packed) as stream:
            yield stream
    except files.PACKING_ERRORS as error:
        raise ElmoFastError(f"{path}: damaged gzip data: {error}") from error


def detected(path: str) -> str:
    """The format of a file, from its first bytes; ElmoFastError if it is unknown."""
    with reading(path) as stream:
        head = stream.read(HEAD_BYTES)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return SAFETENSORS
    header = HEADER.match(head)
    if header:
        line = head[header.end() :].split(b"\n", 1)[0]
        return "word2vec-text" if header[1] == b"0" or ends_in_number(line) else "word2vec-binary"
    if ends_in_number(head.split(b"\n", 1)[0]):
        return "glove"
    hint = "; gensim's own files are pickles: convert them with save_word2vec_format" if head[:1] == b"\x80" else ""
    raise ElmoFastError(f"{path}: contains no word vectors of a known format (word2vec, GloVe, safetensors){hint}")


def ends_in_number(line: bytes) -> bool:
    """Whether a line is a word and at least one number."""
    fields = line.rstrip().rsplit(None, 1)
    return len(fields) == 2 and is_number(fields[1])


def is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def decoded(path: str, words: list[bytes]) -> list[str]:
    """Words as text; invalid UTF-8 (word2vec truncates words at a byte) becomes U+FFFD, with a warning."""
    try:
        together = b"\n".join(words).decode()
        return together.split("\n") if words else []
    except UnicodeDecodeError:
        texts = [word.decode(errors="replace") for word in words]
    bad = [i for i, (word, text) in enumerate(zip(words, texts, strict=True)) if text.encode() != word]
    warnings.warn(
        f"{path}: {len(bad)} words are not UTF-8 (the first: {words[bad[0]]!r}); invalid bytes became U+FFFD",
        stacklevel=4,
    )
    return texts


def encoded(words: Sequence[str]) -> list[bytes]:
    """Words as UTF-8; ElmoFastError for one with a lone surrogate."""
    try:
        return [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise ElmoFastError(f"the word {error.object!r} cannot be written as UTF-8; rename or remove it") from error


CHUNK_BYTES = 1 << 24
ROWS_AT_ONCE = 1024
LONGEST_WORD = 1 << 12
# Words, vectors, and bytes that were read after them.
Rows = tuple[list[bytes], Matrix, bytes]
# deflate compresses by a factor of 1032 at most.
GZIP_RATIO = 1040


def read_binary(path: str, limit: int | None) -> Parsed:
    """All words and vectors of word2vec's binary form, or the first `limit`."""
    return _read_with_header(path, limit, 4, _binary_rows)


def read_text(path: str, limit: int | None) -> Parsed:
    """All words and vectors of word2vec's text, or the first `limit`."""
    return _read_with_header(path, limit, 2, _text_rows)


def read_glove(path: str, limit: int | None) -> Parsed:
    """All of GloVe's text, or the first `limit` words; the numbers at the end of the first line determine the width."""
    with reading(path) as stream:
        fields = stream.readline().split()
    width = len(list(itertools.takewhile(is_number, reversed(fields[1:]))))
    if not width:
        raise ElmoFastError(f"{path}, line 1: wanted a word and its numbers, found {b' '.join(fields)[:40]!r}")
    with reading(path) as stream:
        words, matrix, _ = _text_rows(path, stream, width, limit, first_line=1)
    return Parsed(decoded(path, words), matrix)


def _read_with_header(
    path: str, limit: int | None, smallest: int, read_rows: Callable[[str, IO[bytes], int, int], Rows]
) -> Parsed:
    """Reads a file whose first line says how many rows it has, and how wide they are.

    smallest: the fewest bytes that one number takes
    """
    with reading(path) as stream:
        line = stream.readline(64)
        header = HEADER.fullmatch(line)
        if header is None or int(header[2]) == 0:
            raise ElmoFastError(f"{path}, line 1: wanted the number of words and the width, found {line[:40]!r}")
        rows, width = int(header[1]), int(header[2])
        size = os.path.getsize(path)
        if rows * width * smallest > size * (GZIP_RATIO if isinstance(stream, gzip.GzipFile) else 1):
            raise ElmoFastError(
                f"{path}: line 1 announces {rows} vectors of {width} numbers, too many for {size} bytes: "
                "the file is truncated, or the line is wrong"
            )
        count = rows if limit is None else min(rows, limit)
        words, matrix, rest = read_rows(path, stream, width, count)
        if len(words) < count:
            raise ElmoFastError(f"{path}: truncated: wanted {rows} vectors, as line 1 announces, found {len(words)}")
        if count == rows and (rest.strip() or stream.read(CHUNK_BYTES).strip()):
            raise ElmoFastError(f"{path}: wanted {rows} vectors, as line 1 announces, found more data after them")
    return Parsed(decoded(path, words), matrix)


def _binary_rows(path: str, stream: IO[bytes], width: int, count: int) -> Rows:
    matrix = np.empty((count, width), np.float32)
    words: list[bytes] = []
    size, data, at = 4 * width, b"", 0
    while len(words) < count:
        space = data.find(b" ", at)
        start = space + 1
        if space < 0 or start + size > len(data):
            if not (more := stream.read(CHUNK_BYTES)):
                break
            data, at = data[at:] + more, 0
            if len(data) > LONGEST_WORD and data.find(b" ", 0, LONGEST_WORD) < 0:
                raise ElmoFastError(
                    f"{path}: damaged: no word ends within {LONGEST_WORD} bytes after {len(words)} vectors"
                )
            continue
        matrix[len(words)] = np.frombuffer(data, "<f4", width, start)
        words.append(data[at:space].lstrip(b"\n"))
        if b"\n" in words[-1]:
            raise ElmoFastError(f"{path}: damaged: the word after {len(words) - 1} vectors contains a line break")
        at = start + size
    return words, matrix, data[at:]


def _text_rows(path: str, stream: IO[bytes], width: int, limit: int | None, first_line: int = 2) -> Rows:
    """first_line: the number of the stream's next line, for errors."""
    words: list[bytes] = []
    matrix = np.empty((0, width), np.float32)
    step = CHUNK_BYTES // (8 * width) + 1
    while lines := list(itertools.islice(stream, step if limit is None else min(step, limit - len(words)))):
        found, numbers = _parsed(path, b"".join(lines), width, first_line)
        first_line += len(lines)
        if len(words) + len(found) > len(matrix):
            # In place, where memory for large arrays is moved without copying.
            matrix.resize((max(len(words) + len(found), len(matrix) * 3 // 2), width), refcheck=False)
        matrix[len(words) : len(words) + len(found)] = numbers
        words += found
    matrix.resize((len(words), width), refcheck=False)
    return words, matrix, b""


def _parsed(path: str, block: bytes, width: int, first_line: int) -> tuple[list[bytes], Matrix]:
    """Words and vectors of whole lines, without blank lines at their end."""
    import torch

    from elmo_fast.static.vector_text import read_vector_text

    data = torch.frombuffer(bytearray(block), dtype=torch.uint8)
    matrix, places = read_vector_text(data, width, source=path, first_line=first_line)
    return [block[begin:end] for begin, end in places.tolist()], matrix.numpy()


def write_binary(path: str, words: Sequence[str], matrix: Matrix) -> None:
    """Writes them as word2vec.c does, with a line end after each vector, which every reader accepts."""

    def rows_as_bytes(words: list[bytes], block: Matrix) -> bytes:
        return b"".join(part for word, row in zip(words, block, strict=True) for part in (word, b" ", row, b"\n"))

    _write_rows(path, _encoded_fields(words, "word2vec's binary files"), matrix, rows_as_bytes, header=True)


def write_text(path: str, words: Sequence[str], matrix: Matrix) -> None:
    """word2vec's text."""
    _write_rows(path, _encoded_fields(words, "word2vec's text"), matrix, _rows_as_bytes, header=True)


def write_glove(path: str, words: Sequence[str], matrix: Matrix) -> None:
    """GloVe's text, whose words may contain blanks."""
    _write_rows(path, _encoded_fields(words, None), matrix, _rows_as_bytes, header=False)


def _rows_as_bytes(words: list[bytes], block: Matrix) -> memoryview:
    import torch

    from elmo_fast.static.vector_text import write_vector_text

    together = torch.frombuffer(bytearray(b"".join(words)), dtype=torch.uint8)
    ends = torch.tensor([len(word) for word in words]).cumsum(0)
    return write_vector_text(together, ends, torch.from_numpy(block)).numpy().data


def _encoded_fields(words: Sequence[str], blanks_in: str | None) -> list[bytes]:
    """As `encoded`; ElmoFastError also for an empty word and, unless `blanks_in` is None, for one with white space.

    blanks_in: the format, in which white space separates fields
    """
    fields = encoded(words)
    for word, data in zip(words, fields, strict=True):
        if not data:
            raise ElmoFastError(
                "an empty word can be written to .safetensors only; choose that format, or remove the word"
            )
        if blanks_in is not None and data.split() != [data]:
            raise ElmoFastError(
                f"the word {word!r} cannot be written as {blanks_in}, where white space separates fields; "
                "use .safetensors"
            )
    return fields


def _write_rows(
    path: str, words: list[bytes], matrix: Matrix, rows_as_bytes: Callable[[list[bytes], Matrix], Any], header: bool
) -> None:
    """Writes a file block by block; header: begin with a line of rows and width."""
    with writing(path) as stream:
        if header:
            stream.write(f"{len(matrix)} {matrix.shape[1]}\n".encode())
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            block = slice(first, first + ROWS_AT_ONCE)
            stream.write(rows_as_bytes(words[block], np.array(matrix[block], "<f4", order="C")))
