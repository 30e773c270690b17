"""What the readers and writers of vector files share: gzip or not, which format, words as bytes."""

import contextlib
import gzip
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast import files
from elmo_fast.errors import ElmoFastError

SAFETENSORS = "safetensors"
GZIP = b"\x1f\x8b"
# So much of a file is looked at to tell its format: more than a line of 50,000 numbers.
HEAD_BYTES = 1 << 20
HEADER = re.compile(rb"(\d{1,12}) (\d{1,9})[ \t]*\r?\n")
# deflate makes nothing smaller than to a 1032nd.
GZIP_RATIO = 1040


class Parsed(NamedTuple):
    """What a file holds, in its order; a word may stand there twice."""

    words: list[str]
    matrix: npt.NDArray[np.float32]


@contextlib.contextmanager
def reading(path: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where it is gzip; ElmoFastError where that is damaged."""
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    try:
        with files.reading(path, packed) as stream:
            yield stream
    except files.GZIP_ERRORS as error:
        raise ElmoFastError(f"{path}: damaged gzip data: {error}") from error


def detected(path: str) -> str:
    """The format of a file by what it begins with; ElmoFastError where it is none of them."""
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
    hint = "; gensim's own files are pickles: write them again with save_word2vec_format" if head[:1] == b"\x80" else ""
    raise ElmoFastError(f"{path}: holds no word vectors of a known format (word2vec, GloVe, safetensors){hint}")


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


def header_of(path: str, stream: IO[bytes], smallest: int) -> tuple[int, int]:
    """Rows and width of the first line of word2vec's files, where a file of that many could be as short as this one.

    smallest: bytes that one number takes at least
    """
    line = stream.readline(64)
    header = HEADER.fullmatch(line)
    if header is None or int(header[2]) == 0:
        raise ElmoFastError(f"{path}: the first line must be the number of words and the width; got {line[:40]!r}")
    rows, width = int(header[1]), int(header[2])
    size = os.path.getsize(path)
    if rows * width * smallest > size * (GZIP_RATIO if stream_is_packed(stream) else 1):
        raise ElmoFastError(
            f"{path}: the first line promises {rows} vectors of {width} numbers, too many for {size} bytes: "
            "the file is cut off, or the line is wrong"
        )
    return rows, width


def stream_is_packed(stream: Any) -> bool:
    return isinstance(stream, gzip.GzipFile)


def decoded(path: str, words: list[bytes]) -> list[str]:
    """Words as text; where one is not UTF-8 (word2vec cuts words at a byte) with U+FFFD in it, and a warning."""
    try:
        together = b"\n".join(words).decode()
        return together.split("\n") if words else []
    except UnicodeDecodeError:
        texts = [word.decode(errors="replace") for word in words]
    bad = [i for i, (word, text) in enumerate(zip(words, texts, strict=True)) if text.encode() != word]
    warnings.warn(
        f"{path}: {len(bad)} words are not UTF-8 (the first: {words[bad[0]]!r}); what is wrong in them became U+FFFD",
        stacklevel=4,
    )
    return texts


def encoded(words: Sequence[str], what: str | None) -> list[bytes]:
    """Words as UTF-8; ElmoFastError for one that `what`, where blanks part fields, cannot hold (None: it holds any)."""
    out = []
    for word in words:
        try:
            data = word.encode()
        except UnicodeEncodeError as error:
            raise ElmoFastError(f"the word {word!r} cannot be written as UTF-8") from error
        if not data:
            raise ElmoFastError("an empty word can be kept in .safetensors only")
        if what is not None and data.split() != [data]:
            raise ElmoFastError(
                f"the word {word!r} cannot be kept in {what}, where blanks part fields; use .safetensors"
            )
        out.append(data)
    return out
