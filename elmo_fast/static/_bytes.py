"""What the readers and writers of vector files share: gzip, detection of the format, words as bytes."""

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast import files
from elmo_fast.errors import ElmoFastError

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
