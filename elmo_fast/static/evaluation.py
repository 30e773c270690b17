"""What the evaluations of word vectors share: known words, rows of length 1, the sets that gensim brings."""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, require

Matrix = npt.NDArray[np.float32]


def bundled(name: str) -> str:
    """The path of an evaluation set within gensim: questions-words.txt, wordsim353.tsv, simlex999.txt."""
    path = str(require("gensim.test.utils", "static", f"the evaluation set {name}").datapath(name))
    if not os.path.exists(path):
        raise ElmoFastError(f"this gensim brings no {name}; name a file of it")
    return path


def rows_of_words(words: Sequence[str], case_insensitive: bool) -> tuple[dict[str, int], npt.NDArray[np.int64]]:
    """The row of each word, in upper case that of the first spelled so; and for each row the row of its word."""
    spelled = [word.upper() for word in words] if case_insensitive else list(words)
    rows = dict(zip(reversed(spelled), range(len(spelled) - 1, -1, -1), strict=True))
    return rows, np.fromiter(map(rows.__getitem__, spelled), np.int64, len(spelled))


def unit_rows(matrix: Matrix, block: int = 4096) -> Matrix:
    """Each row divided by its length, [N, D]; a row of zeros stays."""
    unit = np.empty_like(matrix)
    for at in range(0, len(matrix), block):
        rows = matrix[at : at + block]
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)[:, None]
        np.divide(rows, np.where(norms > 0, norms, 1), out=unit[at : at + block])
    return unit
