"""Word vectors and their files: word2vec's, binary and text; GloVe's, which is word2vec's text without its first line.

safetensors is our own format and the cache of a text file. All readers return the words and their vectors [N, D]
float32 in the file's order; a word may occur twice. ElmoFastError names the file, and the line or word.
"""

import codecs
import itertools
import json
import os
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from elmo_fast._io import atomic_file, compressed
from elmo_fast._io.fields import parsed
from elmo_fast.embed.token_files import safetensors_header
from elmo_fast.embed.vector_text import Matrix, is_number, is_read_back, read_vector_text, write_vector_text
from elmo_fast.errors import (
    CheckpointError,
    ElmoFastError,
    check_choice,
    not_a_string,
    require,
    sentence_of,
)

FORMATS = ("word2vec-binary", "word2vec-text", "glove", "safetensors")
SUFFIXES = {".bin": "word2vec-binary", ".txt": "word2vec-text", ".vec": "word2vec-text", ".safetensors": "safetensors"}
HEAD_BYTES = 1 << 20  # read to detect format and width: more than a line of 50,000 numbers
HEAD_LINES = 100
HEADER = re.compile(rb"(\d{1,12}) (\d{1,9})[ \t]*\r?\n")
CHUNK_BYTES = 1 << 24
ROWS_AT_ONCE = 1024
LONGEST_WORD = 1 << 12
WORTH_BYTES = 1 << 25  # smaller text files are read in well under a second
READER = 2  # increases when a reader gives other words or numbers, so that older caches are not used
# The metadata of our safetensors, and the name of the entry that holds it.
MADE_BY = {"format": "elmo_fast.vectors", "version": "1"}
ENTRY = "elmo_fast"
Content = tuple[list[str], Matrix]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Words and their vectors, row by row.

    words: V different words, usually the most frequent first
    matrix: [V, D] float32
    source: the file they were read from, or other words on where they come from
    Raises ElmoFastError if the two do not match, or a word occurs twice.
    """

    words: list[str]
    matrix: Matrix
    source: str = ""

    def __post_init__(self) -> None:
        not_a_string(self.words, "Vectors: words", "a list of words")
        matrix = self.matrix
        if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype != np.float32 or not matrix.shape[1]:
            actual = f"{matrix.dtype} {list(matrix.shape)}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
            raise ElmoFastError(f"Vectors: matrix must be a numpy array [V, D] of float32, D at least 1; got {actual}")
        if len(self.words) != len(matrix):
            raise ElmoFastError(f"Vectors: matrix must have {len(self.words)} rows, one per word; got {len(matrix)}")
        if len(set(self.words)) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if self.index[word] != row)
            raise ElmoFastError(f"Vectors: words must be all different; got {twice!r} twice")

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        source = f", from {self.source}" if self.source else ""
        return f"Vectors({len(self):,} words, {self.dimension} dimensions{source})"

    def __contains__(self, word: object) -> bool:
        return word in self.index

    @property
    def dimension(self) -> int:
        """D, the width of a vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def vector(self, word: str) -> Matrix:
        """Return the vector of a word, [D]; ElmoFastError if it has none."""
        row = self.index.get(word)
        if row is None:
            other = next((w for w in (word.lower(), word.capitalize(), word.upper()) if w in self.index), None)
            raise ElmoFastError(f"{word!r} has no vector" + (f"; {other!r} has one" if other else ""))
        return self.matrix[row]

    def check_width(self, dimension: int) -> None:
        """Raise ElmoFastError unless training vectors of this width can start from these."""
        if self.dimension != dimension:
            raise ElmoFastError(f"dimension must be {self.dimension}, as init_from has it; got {dimension}")

    def copy_to(self, words: Sequence[str], matrix: Matrix) -> None:
        """Copy the vectors of the words that have one to rows of a matrix [len(words), D]; ElmoFastError for none."""
        if not (rows := [row for row, word in enumerate(words) if word in self]):
            raise ElmoFastError("init_from must have a vector for some word of the text; got none in common")
        matrix[rows] = self.matrix[[self.index[words[row]] for row in rows]]

    def to_gensim(self) -> Any:
        """Return the same as a gensim.models.KeyedVectors; MissingExtraError without gensim."""
        keyed = require("gensim.models", "static", "Vectors.to_gensim").KeyedVectors(self.dimension)
        keyed.add_vectors(self.words, self.matrix)
        return keyed


def load_vectors(
    path: str | os.PathLike[str], format: str = "auto", *, limit: int | None = None, cache: bool = True
) -> Vectors:
    """Read the word vectors in a file, plain, gzip or Zstandard.

    path: what word2vec, gensim's save_word2vec_format, GloVe, fastText (.vec) or save_vectors wrote
    format: "word2vec-binary", "word2vec-text", "glove" (as word2vec's text, without the header line), "safetensors";
        "auto" detects the format from the content
    limit: read only the first N words
    cache: cache a text file of 32 MB or more as PATH.cache.safetensors, and read that as long as the file's size and
        time are unchanged; a damaged cache is ignored, with a message

    If a word occurs twice the first vector is kept, and in words that are not UTF-8 invalid bytes become U+FFFD; a
    warning says how many. Raises ElmoFastError naming the file and the line or word: an unknown format, a vector of the
    wrong width, an invalid or infinite number, a truncated file.
    """
    path = os.fspath(path)
    if limit is not None and limit < 0:
        raise ElmoFastError(f"limit must be 0 or more; got {limit}")
    check_choice("format", format, ("auto", *FORMATS))
    format = detected(path) if format == "auto" else format
    worth = cache and format in ("word2vec-text", "glove") and os.path.getsize(path) >= WORTH_BYTES
    words, matrix = (read_through_cache if worth else read)(path, format, limit)
    if (row := _first_infinite(matrix)) is not None:
        raise ElmoFastError(f"{path}: the vector of {words[row]!r} contains NaN or infinity")
    rows = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))
    if len(rows) < len(words):
        first = sorted(rows.values())
        twice = next(word for row, word in enumerate(words) if rows[word] != row)
        again = f"{len(words) - len(first)} words occur again (the first: {twice!r})"
        warnings.warn(f"{path}: {again}; the first vector is kept", stacklevel=2)
        words, matrix = [words[row] for row in first], matrix[first]
    return Vectors(words, matrix, path)


def save_vectors(vectors: Vectors, path: str | os.PathLike[str], format: str = "auto") -> None:
    """Write word vectors; the file appears complete or not at all, gzip if its name ends in .gz.

    format: as in load_vectors; "auto" uses the name: .bin is word2vec's binary form, .txt and .vec its text,
        .safetensors our own format, which is the fastest and takes any word

    Text has the fewest digits that give the same float32. Raises ElmoFastError for a name without a known format, a
    vector that is not finite, and a word that the format cannot store (with a space in it).
    """
    path = os.fspath(path)
    format = format_to_write(path, format)
    if (row := _first_infinite(vectors.matrix)) is not None:
        raise ElmoFastError(f"{vectors.words[row]!r} has a vector with NaN or infinity")
    words, matrix = vectors.words, vectors.matrix
    if format == "safetensors":
        _write_safetensors(path, words, matrix)
        return
    fields = _encoded(words)
    for word, field in zip(words, fields, strict=True):
        if not field or (field.split() != [field] and not (format == "glove" and is_read_back(field))):
            raise ElmoFastError(f"the word {word!r} cannot be written as {format} and read back; use .safetensors")
    with atomic_file.writing(path) as stream:
        if format != "glove":
            stream.write(f"{len(matrix)} {matrix.shape[1]}\n".encode())
        for first in range(0, len(matrix), ROWS_AT_ONCE):
            block, rows = fields[first : first + ROWS_AT_ONCE], np.array(matrix[first : first + ROWS_AT_ONCE], "<f4")
            if format == "word2vec-binary":  # with a line end after each vector, as word2vec.c
                pairs = zip(block, rows, strict=True)
                stream.write(b"".join(part for word, row in pairs for part in (word, b" ", row, b"\n")))
            else:
                stream.write(write_vector_text(block, rows).data)


def format_to_write(path: str, format: str) -> str:
    """Return the format, for "auto" the one of the file's suffix; ElmoFastError if that names none."""
    suffix = os.path.splitext(path.removesuffix(".gz"))[1]
    if format == "auto" and suffix not in SUFFIXES:
        raise ElmoFastError(f"{path!r}: the name must end in {', '.join(SUFFIXES)} (or then .gz), or name the format")
    check_choice("format", format, ("auto", *FORMATS))
    return SUFFIXES[suffix] if format == "auto" else format


def _first_infinite(matrix: Matrix) -> int | None:
    """Return the first row with NaN or infinity; None if there is none."""
    for at in range(0, len(matrix), 4096):
        finite = np.isfinite(matrix[at : at + 4096]).all(1)
        if not finite.all():
            return at + int(finite.argmin())
    return None


def detected(path: str) -> str:
    """Return the format of a file, from its first bytes; ElmoFastError if it is unknown."""
    with compressed.reading(path) as stream:
        head = stream.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
            return "safetensors"
        if header := HEADER.match(head):
            return "word2vec-text" if header[1] == b"0" or _width(head[header.end() :]) else "word2vec-binary"
        if _width(head):
            return "glove"
    raise ElmoFastError(
        f"{path}: contains no word vectors of a known format: word2vec (gensim's save_word2vec_format), "
        "GloVe, fastText's .vec or safetensors"
    )


def _width(head: bytes) -> int:
    """Return how many numbers end most of the first lines: a single line may be damaged, or have a word of numbers.

    The first field is none. NaN, infinity and decimal commas count: their lines are refused when they are read, not
    taken for binary.
    """

    def is_any_number(field: bytes) -> bool:
        return is_number(field.replace(b",", b".", 1)) or field.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity")

    lines = head.split(b"\n", HEAD_LINES)
    if len(lines) > 2:
        lines.pop()  # it may be cut off
    ends = (itertools.takewhile(is_any_number, reversed(line.split()[1:])) for line in lines if line.strip())
    counts = Counter(len(list(numbers)) for numbers in ends)
    return max(counts, key=lambda width: (counts[width], width > 0), default=0)


def read(path: str, format: str, limit: int | None) -> Content:
    """Read all words and vectors of a file in one of FORMATS, or the first `limit`."""
    if format == "safetensors":
        texts, vectors, _ = _read_safetensors(path)
        return texts[:limit], vectors[:limit]
    with compressed.reading(path) as stream:
        head = stream.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
        header = None if format == "glove" else HEADER.match(head)
        announced, width, start = (int(header[1]), int(header[2]), header.end()) if header else (None, _width(head), 0)
        if not width or (header is None and format != "glove"):
            first = head.split(b"\n", 1)[0]
            wanted = "a word and its numbers" if format == "glove" else "the number of words and the width"
            raise ElmoFastError(f"{path}, line 1: wanted {wanted}, found {first[:40]!r}")
        most = min((number for number in (announced, limit) if number is not None), default=None)
        if format == "word2vec-binary":
            words, matrix, rest = _binary_rows(path, head[start:], stream, width, most)
        else:
            words, matrix, rest = _text_rows(path, head[start:], stream, width, most, 2 if header else 1)
        if announced is not None and len(words) != limit:
            as_said = f"wanted {announced} vectors, as line 1 announces, found"
            if len(words) < announced:
                raise ElmoFastError(f"{path}: truncated: {as_said} {len(words)}")
            if rest.strip() or stream.read(CHUNK_BYTES).strip():
                raise ElmoFastError(f"{path}: {as_said} more data after them")
    return _decoded(path, words), matrix


def read_through_cache(path: str, format: str, limit: int | None) -> Content:
    """Read as `read` does, but from an intact and up-to-date cache; all of a file is written to its cache."""
    cache, about = f"{path}.cache.safetensors", os.stat(path)
    source = json.dumps([format, about.st_size, about.st_mtime_ns, READER])
    if os.path.exists(cache):
        try:
            words, matrix, metadata = _read_safetensors(cache)
            if metadata.get("source") == source:
                return words[:limit], matrix[:limit]
        except ElmoFastError as error:
            warnings.warn(f"the cache cannot be used, so {path} is read again: {error}", stacklevel=3)
    words, matrix = read(path, format, limit)
    if limit is None:
        try:
            _write_safetensors(cache, words, matrix, {"source": source})
        except OSError as error:
            warnings.warn(f"{path} is not cached, so reading stays slow: {sentence_of(error)}", stacklevel=3)
    return words, matrix


# Both return the words, their vectors, and the bytes that were read after them. They grow as the file is read: what its
# first line announces need not be true.
Rows = tuple[list[bytes], Matrix, bytes]


def _binary_rows(path: str, data: bytes, stream: IO[bytes], width: int, limit: int | None) -> Rows:
    """Read up to `limit` words and vectors of `data` and the stream after it."""
    size, at, matrix = 4 * width, 0, np.empty((0, width), np.float32)
    words: list[bytes] = []
    while limit is None or len(words) < limit:
        space = data.find(b" ", at)
        start = space + 1
        if space < 0 or start + size > len(data):
            if len(data) - at > LONGEST_WORD and data.find(b" ", at, at + LONGEST_WORD) < 0:
                raise ElmoFastError(f"{path}: damaged: no word ends within {LONGEST_WORD} bytes of vector {len(words)}")
            if not (more := stream.read(max(CHUNK_BYTES, len(data) - at))):
                break
            data, at = data[at:] + more, 0
            continue
        if len(words) == len(matrix):
            _make_room(matrix, len(words) + 1, limit)
        matrix[len(words)] = np.frombuffer(data, "<f4", width, start)
        words.append(data[at:space].lstrip(b"\n"))
        if b"\n" in words[-1]:
            raise ElmoFastError(f"{path}: damaged: the word after {len(words) - 1} vectors contains a line break")
        at = start + size
    matrix.resize((len(words), width), refcheck=False)
    return words, matrix, data[at:]


def _text_rows(path: str, data: bytes, stream: IO[bytes], width: int, limit: int | None, first_line: int) -> Rows:
    """Read words and vectors of lines of `data` and the stream after it, up to `limit`; errors count from a line."""
    words: list[bytes] = []
    matrix, ends = np.empty((0, width), np.float32), False
    while limit is None or len(words) < limit:
        if (end := len(data) if ends else data.rfind(b"\n") + 1) == 0:
            if ends:
                break
            if len(data) > compressed.LONGEST_LINE:
                raise ElmoFastError(f"{path}, line {first_line}: longer than {compressed.LONGEST_LINE:,} bytes")
            more = stream.read(max(CHUNK_BYTES, len(data)))
            data, ends = data + more, not more
            continue
        if limit is not None and data.count(b"\n", 0, end) > limit - len(words):
            end -= len(data[:end].split(b"\n", limit - len(words))[-1])
        more_words, numbers = read_vector_text(data[:end], width, path, first_line)
        first_line += data.count(b"\n", 0, end)
        _make_room(matrix, len(words) + len(more_words), limit)
        matrix[len(words) : len(words) + len(more_words)] = numbers
        words += more_words
        data = data[end:]
    matrix.resize((len(words), width), refcheck=False)
    return words, matrix, data


def _make_room(matrix: Matrix, rows: int, most: int | None) -> None:
    """Give a matrix at least so many rows, and half as many more, up to `most`."""
    if rows > len(matrix):
        # In place, where memory for large arrays is moved without copying.
        room = max(rows, len(matrix) * 3 // 2)
        matrix.resize((room if most is None else max(rows, min(room, most)), matrix.shape[1]), refcheck=False)


def _read_safetensors(path: str) -> tuple[list[str], Matrix, dict[str, str]]:
    """Read words, vectors and metadata of a file that `_write_safetensors` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            try:
                metadata = parsed((file.metadata() or {}).get(ENTRY, "{}"), dict[str, str], ENTRY)
            except CheckpointError:
                metadata = {}
            if not metadata.items() >= MADE_BY.items():
                raise ElmoFastError(f"{path}: safetensors, but no word vectors ({' '.join(MADE_BY.values())})")
            arrays = {name: file.get_tensor(name) for name in ("vectors", "words", "ends")}
    except SafetensorError as error:
        raise ElmoFastError(f"{path}: not a safetensors file, or a damaged one ({error})") from error
    if metadata.get("crc32") != _checksum(arrays):
        raise ElmoFastError(f"{path}: damaged: its content is not what was written")
    text = arrays["words"].tobytes()
    words = [text[a:b].decode() for a, b in itertools.pairwise([0, *arrays["ends"].tolist()])]
    return words, arrays["vectors"], metadata


def _write_safetensors(path: str, words: Sequence[str], matrix: Matrix, extra: Mapping[str, str] | None = None) -> None:
    """Write our own format. extra: more metadata."""
    if path.endswith(".gz"):
        raise ElmoFastError(f"{path!r}: safetensors files are not compressed; leave out .gz")
    data = _encoded(words)
    arrays: dict[str, npt.NDArray[Any]] = {
        "ends": np.cumsum(np.fromiter(map(len, data), np.int64, len(data))),
        "vectors": np.ascontiguousarray(matrix, np.float32),
        "words": np.frombuffer(b"".join(data), np.uint8),
    }
    metadata = {**MADE_BY, "crc32": _checksum(arrays), **(extra or {})}
    tensors = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    with atomic_file.atomic_file(path) as temporary, open(temporary, "wb") as file:
        file.write(safetensors_header(tensors, {ENTRY: json.dumps(metadata)}))
        for array in arrays.values():
            array.tofile(file)


def _checksum(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return a CRC: it detects damage, not malice, which would cost a SHA-256."""
    value = 0
    for name in ("vectors", "words", "ends"):
        array = arrays[name]
        value = zlib.crc32(repr((name, array.dtype.str, array.shape)).encode(), value)
        value = zlib.crc32(array.reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"


def _decoded(path: str, words: list[bytes]) -> list[str]:
    """Return words as text; invalid UTF-8 (word2vec truncates words at a byte) becomes U+FFFD, with a warning."""
    try:
        return b"\n".join(words).decode().split("\n") if words else []
    except UnicodeDecodeError:
        texts = [word.decode(errors="replace") for word in words]
    bad = [word for word, text in zip(words, texts, strict=True) if text.encode() != word]
    warnings.warn(
        f"{path}: {len(bad)} words are not UTF-8 (the first: {bad[0]!r}); invalid bytes became U+FFFD", stacklevel=4
    )
    return texts


def _encoded(words: Sequence[str]) -> list[bytes]:
    """Return words as UTF-8; ElmoFastError for one with a lone surrogate."""
    try:
        return [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise ElmoFastError(f"the word {error.object!r} cannot be written as UTF-8; rename or remove it") from error
