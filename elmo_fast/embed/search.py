"""The nearest of many vectors by cosine: exact, block by block, without a second copy."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.embed.layers import unit_rows
from elmo_fast.embed.vector_text import Matrix
from elmo_fast.errors import check_counts

BLOCK_BYTES = 1 << 20  # a block of rows stays in a core's cache


class Nearest(NamedTuple):
    """The rows nearest to each query, nearest first, of equal ones the earlier: rows [Q, n] int64, cosines [Q, n]."""

    rows: npt.NDArray[np.int64]
    cosines: Matrix


def blocks(rows: Matrix) -> Iterator[tuple[int, Matrix]]:
    """Yield rows [N, ...], in memory or a memmap, block by block, each after the number of its first one."""
    step = max(1, BLOCK_BYTES // (4 * math.prod(rows.shape[1:])))
    return ((first, rows[first : first + step]) for first in range(0, len(rows), step))


class Search:
    """Find the rows nearest to each query among those added so far.

    queries: [Q, D] float32; topn: most rows for each query, 1 or more
    """

    def __init__(self, queries: Matrix, topn: int) -> None:
        self._queries = np.ascontiguousarray(unit_rows(queries).T)
        self._topn = topn
        self._best = [Nearest(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
        self._least = np.full(len(queries), -np.inf, np.float32)  # cosine that another row must reach

    def add(self, first: int, rows: Matrix, *, unit: bool = False) -> None:
        """Compare rows [n, D] float32. first: number of the first one; unit: their lengths are 1 (or 0) already."""
        cosines = rows @ self._queries
        if not unit:
            lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
            cosines /= np.where(lengths > 0, lengths, 1)[:, None]
        for query in np.flatnonzero((cosines >= self._least).any(axis=0)):
            best, near = self._best[query], np.flatnonzero(cosines[:, query] >= self._least[query])
            candidates = Nearest(
                np.concatenate([best.rows, first + near]), np.concatenate([best.cosines, cosines[near, query]])
            )
            order = np.lexsort((candidates.rows, -candidates.cosines))[: self._topn]
            self._best[query] = Nearest(candidates.rows[order], candidates.cosines[order])
            if len(order) == self._topn:
                self._least[query] = self._best[query].cosines[-1]

    def add_all(self, matrix: Matrix, *, unit: bool = False) -> None:
        """Compare a matrix [N, D], in memory or a memmap, block by block; unit: as in `add`."""
        for first, rows in blocks(matrix):
            self.add(first, rows, unit=unit)

    def nearest(self) -> Nearest:
        """Return the nearest rows, n = min(topn, rows added); a row or query of zeros has cosine 0 with everything."""
        if not self._best:
            return Nearest(np.empty((0, self._topn), np.int64), np.empty((0, self._topn), np.float32))
        return Nearest(np.stack([best.rows for best in self._best]), np.stack([best.cosines for best in self._best]))


def nearest(matrix: Matrix, queries: Matrix, topn: int) -> Nearest:
    """Find the `topn` rows with the largest cosine with each query.

    matrix: [N, D] float32, in memory or a memmap, which is read once
    queries: [Q, D] float32
    Returns n = min(topn, N) per query; a row or query of zeros has cosine 0 with everything.
    Raises ElmoFastError for topn below 1.
    """
    check_counts(topn=topn)
    search = Search(queries, min(topn, len(matrix)))
    search.add_all(matrix)
    return search.nearest()
