"""Similarity of word pairs, compared with human scores: Pearson's and Spearman's correlation."""

import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.static.evaluation import bundled, rows_of, unit_rows, warn_skipped
from elmo_fast.static.vectors import Vectors
from elmo_fast.text import read_lines

Column = npt.NDArray[np.float64]
WORDSIM353, SIMLEX999 = "wordsim353.tsv", "simlex999.txt"


class SimilarityScores(NamedTuple):
    """Two correlations, and over how many pairs.

    compared: pairs whose two words have vectors (all pairs if unknown ones count as cosine 0)
    unknown: pairs with a word without a vector
    """

    pearson: float
    spearman: float
    compared: int
    unknown: int
    pairs: int

    @property
    def coverage(self) -> float:
        """The share of the pairs whose words are known."""
        return 1 - self.unknown / self.pairs

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; a correlation that is NaN is None."""
        values = {**self._asdict(), "coverage": self.coverage}
        return {name: None if value != value else value for name, value in values.items()}


def evaluate_similarity(
    vectors: Vectors,
    path: str | os.PathLike[str] | None = None,
    *,
    delimiter: str = "\t",
    restrict_vocab: int | None = 300_000,
    case_insensitive: bool = True,
    unknown_as_zero: bool = False,
) -> SimilarityScores:
    """The correlation of the cosines of word pairs with human scores of those pairs.

    path: lines of two words and a number, separated by `delimiter`; lines that begin with # are comments. None:
        WordSim-353 from gensim (MissingExtraError without gensim)
    restrict_vocab, case_insensitive: as in evaluate_analogies
    unknown_as_zero: a pair with an unknown word has cosine 0 (gensim's dummy4unknown); otherwise it is skipped
    The correlations are NaN if fewer than two pairs are left, or one of the columns is constant.
    Raises ElmoFastError for a file without pairs.
    Source: gensim's evaluate_word_pairs, whose correlations these are.
    """
    path = bundled(WORDSIM353) if path is None else os.fspath(path)
    pairs, gold = _read(path, delimiter)
    rows, _ = rows_of(pairs, vectors.words[:restrict_vocab], case_insensitive)
    have = (rows >= 0).all(1)
    cosines = np.zeros(len(rows))
    left, right = (unit_rows(vectors.matrix[rows[have, side]]) for side in (0, 1))
    cosines[have] = np.einsum("nd,nd->n", left, right, dtype=np.float64)
    compared = np.ones_like(have) if unknown_as_zero else have
    a, b = gold[compared], cosines[compared]
    return SimilarityScores(
        pearson(a, b), pearson(ranks(a), ranks(b)), int(compared.sum()), int((~have).sum()), len(pairs)
    )


def pearson(a: Column, b: Column) -> float:
    """Pearson's correlation of two columns, [n] each; NaN if one is constant or n is below 2.

    sum (a - mean a)(b - mean b) / (|a - mean a| |b - mean b|)
    """
    if len(a) < 2:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / norms, -1, 1)) if norms > 0 else float("nan")


def ranks(values: Column) -> Column:
    """The rank of each value, from 1; equal values share the mean of their ranks. [n]"""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Column = last - (counts - 1) / 2
    return mean[inverse]


def _read(path: str, delimiter: str) -> tuple[list[list[str]], Column]:
    """The pairs and their scores."""
    pairs, gold, skipped = [], [], []
    for index, line in read_lines(path):
        if not line or line.startswith("#"):
            continue
        *pair, score = line.split(delimiter)
        try:
            gold.append(float(score if len(pair) == 2 else ""))
            pairs.append(pair)
        except ValueError:
            skipped.append(index + 1)
    wanted = f"two words and a number separated by {delimiter!r}"
    warn_skipped(path, skipped, wanted)
    if not pairs:
        raise ElmoFastError(f"{path}: wanted pairs (lines of {wanted}), found none")
    return pairs, np.array(gold)
