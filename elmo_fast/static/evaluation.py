"""What the evaluations of word vectors share: rows of the words asked for, rows of length 1, gensim's test sets."""

import os
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, require

Matrix = npt.NDArray[np.float32]


def bundled(name: str) -> str:
    """The path of an evaluation set within gensim: questions-words.txt, wordsim353.tsv, simlex999.txt."""
    path = str(require("gensim.test.utils", "static", f"the evaluation set {name}").datapath(name))
    if not os.path.exists(path):
        raise ElmoFastError(f"the installed gensim has no evaluation set {name}; give a file of your own")
    return path


def rows_of(
    asked: Sequence[Sequence[str]], words: Sequence[str], case_insensitive: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row of each word asked for, [N, K], -1 if unknown; and for each of `words` the first row spelled like it.

    case_insensitive: compare in upper case; the first of several spellings wins
    """
    spell: Callable[[str], str] = str.upper if case_insensitive else str
    spelled = [spell(word) for word in words]
    rows = dict(zip(reversed(spelled), range(len(spelled) - 1, -1, -1), strict=True))
    found = np.array([[rows.get(spell(word), -1) for word in group] for group in asked], np.int64)
    return found, np.fromiter(map(rows.__getitem__, spelled), np.int64, len(spelled))


def warn_skipped(path: str, lines: Sequence[int], wanted: str) -> None:
    """Warns about lines, by their numbers from 1, that are not what is wanted."""
    if lines:
        warnings.warn(f"{path}: {len(lines)} lines are not {wanted}, and are skipped (line {lines[0]})", stacklevel=4)


def unit_rows(matrix: Matrix, block: int = 4096) -> Matrix:
    """Each row divided by its length, [N, D]; a row of zeros stays zero."""
    unit = np.empty_like(matrix)
    for at in range(0, len(matrix), block):
        rows = matrix[at : at + block]
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)[:, None]
        np.divide(rows, np.where(norms > 0, norms, 1), out=unit[at : at + block])
    return unit
