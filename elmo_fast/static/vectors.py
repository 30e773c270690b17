"""Word vectors and their files: word2vec's, GloVe's and our own format."""

import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from elmo_fast.errors import ElmoFastError, check_choice, not_a_string, require
from elmo_fast.static import files
from elmo_fast.static.vector_text import Matrix


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

    def to_gensim(self) -> Any:
        """Return the same as a gensim.models.KeyedVectors; MissingExtraError without gensim."""
        keyed = require("gensim.models", "static", "Vectors.to_gensim").KeyedVectors(self.dimension)
        keyed.add_vectors(self.words, self.matrix)
        return keyed


def load_vectors(
    path: str | os.PathLike[str], format: str = "auto", *, limit: int | None = None, cache: bool = True
) -> Vectors:
    """Read the word vectors in a file, plain or gzip.

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
    check_choice("format", format, ("auto", *files.FORMATS))
    format = files.detected(path) if format == "auto" else format
    worth = cache and format in ("word2vec-text", "glove") and os.path.getsize(path) >= files.WORTH_BYTES
    words, matrix = (files.read_through_cache if worth else files.read)(path, format, limit)
    if (row := _first_infinite(matrix)) is not None:
        raise ElmoFastError(f"{path}: the vector of {words[row]!r} contains NaN or infinity")
    rows = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))
    if len(rows) < len(words):
        first = sorted(rows.values())
        twice = next(word for row, word in enumerate(words) if rows[word] != row)
        message = (
            f"{path}: {len(words) - len(first)} words occur again (the first: {twice!r}); the first vector is kept"
        )
        warnings.warn(message, stacklevel=2)
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
    files.write(path, format, vectors.words, vectors.matrix)


def format_to_write(path: str, format: str) -> str:
    """Return the format, for "auto" the one of the file's suffix; ElmoFastError if that names none."""
    suffix = os.path.splitext(path.removesuffix(".gz"))[1]
    if format == "auto" and suffix not in files.SUFFIXES:
        raise ElmoFastError(
            f"{path!r}: the name must end in {', '.join(files.SUFFIXES)} (or .gz after it); or name the format"
        )
    check_choice("format", format, ("auto", *files.FORMATS))
    return files.SUFFIXES[suffix] if format == "auto" else format


def _first_infinite(matrix: Matrix) -> int | None:
    """Return the first row with NaN or infinity; None if there is none."""
    for at in range(0, len(matrix), 4096):
        finite = np.isfinite(matrix[at : at + 4096]).all(1)
        if not finite.all():
            return at + int(finite.argmin())
    return None
