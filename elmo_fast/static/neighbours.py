"""The nearest of many vectors by cosine: exact, block by block, without a second copy."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, check_counts, not_a_string
from elmo_fast.static.vectors import Vectors
from elmo_fast.token_files.cache_file import rows_of_a_block

Matrix = npt.NDArray[np.float32]
# As many queries are processed together as their cosines fit into this.
COSINE_BYTES = 1 << 28


class Nearest(NamedTuple):
    """The rows nearest to each query, nearest first, of equal ones the earlier: rows [Q, n] int64, cosines [Q, n]."""

    rows: npt.NDArray[np.int64]
    cosines: Matrix


def nearest(
    matrix: Matrix,
    queries: Matrix,
    topn: int,
    *,
    unit: bool = False,
    check: Callable[[int, Matrix], None] | None = None,
    block_rows: int | None = None,
) -> Nearest:
    """The `topn` rows with the largest cosine with each query.

    matrix: [N, D] float32, in memory or a memmap; it is read once for every 268 MB of cosines
    queries: [Q, D] float32
    unit: the rows of the matrix already have length 1 (or 0)
    check: called with the number of each block and its rows before use
    block_rows: rows per block; None: one megabyte
    Returns n = min(topn, N) per query; a row or query of zeros has cosine 0 with everything.
    Raises ElmoFastError for shapes that do not match and topn below 1.
    """
    _check(matrix, queries, topn)
    step = block_rows or rows_of_a_block(matrix.dtype, matrix.shape[1])
    together = max(1, COSINE_BYTES // max(4 * len(matrix), 1))
    shape = len(queries), min(topn, len(matrix))
    found = Nearest(np.empty(shape, np.int64), np.empty(shape, np.float32))
    for first in range(0, len(queries), together):
        cosines = _cosines(matrix, queries[first : first + together], unit, check, step)
        for query, column in enumerate(cosines.T, first):
            found.rows[query] = _greatest(np.ascontiguousarray(column), topn)
            found.cosines[query] = column[found.rows[query]]
    return found


def nearest_words(vectors: Vectors, words: Sequence[str], topn: int = 10) -> list[list[tuple[str, float]]]:
    """The `topn` words nearest to each of `words`, without that word, and their cosines: one list per word.

    Raises ElmoFastError for a word without a vector, topn below 1, and a string instead of a list.
    """
    not_a_string(words, "words", "a list of words")
    queries = [vectors.vector(word) for word in words]
    return _words_near(vectors, np.stack(queries), [{word} for word in words], topn) if queries else []


def most_similar(
    vectors: Vectors,
    positive: str | Sequence[str] | None = None,
    negative: str | Sequence[str] | None = None,
    topn: int = 10,
) -> list[tuple[str, float]]:
    """The `topn` words nearest to all words of `positive` and far from those of `negative`, and their cosines.

        argmax over w of cos(w, sum of p/|p| - sum of n/|n|),    w none of the words given

    positive, negative: words, or a word; positive=["king", "woman"], negative=["man"] asks what is to woman as king is
        to man (3CosAdd)
    Raises ElmoFastError for a word without a vector, no words, and topn below 1.
    Source: the name, arguments and numbers of gensim's KeyedVectors.most_similar.
    """
    plus, minus = _given_words("positive", positive), _given_words("negative", negative)
    if not plus and not minus:
        raise ElmoFastError("most_similar: positive or negative must have at least one word; got none")
    unit = unit_rows(np.stack([vectors.vector(word) for word in [*plus, *minus]]))
    query = unit[: len(plus)].sum(0) - unit[len(plus) :].sum(0)
    return _words_near(vectors, query[None], [{*plus, *minus}], topn)[0]


def _given_words(name: str, given: Any) -> list[str]:
    words = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise ElmoFastError(f"most_similar: {name} must be a word or a list of words; got {given!r:.60}")
    return list(words)


def _words_near(vectors: Vectors, queries: Matrix, given: list[set[str]], topn: int) -> list[list[tuple[str, float]]]:
    """The words nearest to each query, without those that it consists of."""
    _check(vectors.matrix, queries, topn)
    found = nearest(vectors.matrix, queries, topn + max(map(len, given)))
    near = []
    for left_out, rows, cosines in zip(given, found.rows.tolist(), found.cosines.tolist(), strict=True):
        pairs = [(vectors.words[row], cosine) for row, cosine in zip(rows, cosines, strict=True)]
        near.append([pair for pair in pairs if pair[0] not in left_out][:topn])
    return near


def _check(matrix: Any, queries: Any, topn: int) -> None:
    for name, array in (("matrix", matrix), ("queries", queries)):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype != np.float32:
            given = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ElmoFastError(f"nearest: {name} must be a numpy array of float32 with two axes; got {given}")
    if matrix.shape[1] != queries.shape[1] or not matrix.shape[1]:
        raise ElmoFastError(
            f"nearest: queries must be as wide as matrix, 1 or more; got {queries.shape[1]} and {matrix.shape[1]}"
        )
    check_counts(topn=topn)


def _cosines(
    matrix: Matrix, queries: Matrix, unit: bool, check: Callable[[int, Matrix], None] | None, step: int
) -> Matrix:
    """The cosine of each row of the matrix with each query, [N, Q]."""
    norms = np.linalg.norm(queries.astype(np.float64), axis=1, keepdims=True)
    wanted = np.ascontiguousarray((queries / np.where(norms > 0, norms, 1)).astype(np.float32).T)
    cosines = np.empty((len(matrix), len(queries)), np.float32)
    for number, first in enumerate(range(0, len(matrix), step)):
        rows, out = matrix[first : first + step], cosines[first : first + step]
        if check is not None:
            check(number, rows)
        np.matmul(rows, wanted, out=out)
        if not unit:
            lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
            out /= np.where(lengths > 0, lengths, 1)[:, None]
    return cosines


def _greatest(values: Matrix, topn: int) -> npt.NDArray[np.int64]:
    """The places of the greatest values, greatest first; of equal values the earlier."""
    if topn < len(values):
        least = np.partition(values, len(values) - topn)[len(values) - topn]
        above = np.flatnonzero(values > least)
        places = np.concatenate([above, np.flatnonzero(values == least)[: topn - len(above)]])
    else:
        places = np.arange(len(values))
    return places[np.lexsort((places, -values[places]))]


def unit_rows(matrix: Matrix, block: int = 4096) -> Matrix:
    """Each row divided by its length, [N, D]; a row of zeros stays zero."""
    unit = np.empty_like(matrix)
    for at in range(0, len(matrix), block):
        rows = matrix[at : at + block]
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)[:, None]
        np.divide(rows, np.where(norms > 0, norms, 1), out=unit[at : at + block])
    return unit
