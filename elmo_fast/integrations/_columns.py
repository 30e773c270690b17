"""Batches of a table with a column of sentences, and the same batches with their vectors: for Ray and datasets."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.modules.layers import Layers
from elmo_fast.modules.model_digest import model_digest
from elmo_fast.modules.token_vectors import POOLINGS, TokenVectors


class ColumnVectors:
    """Adds to a batch of rows, by column, the vectors of the sentences in one of its columns.

    Copies of it in other processes (pickle) hold no weights and read the model once, when they are first called.

    Args:
        model: a folder with a model or a name on the hub, which all machines can read.
        column: of the sentences, strings to be split at white space or lists of words.
        output: the column to add: [T, W] float32 for each row or, pooled, [W].
        layers: "average", "top", "all" side by side, a number from 0, or several.
        pooling: "mean" or "max" over a sentence's tokens; None keeps all.
        settings: batch_size and max_tokens of what runs together; device, precision, backend; as in TokenVectors.

    Raises: ElmoFastError, CheckpointError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        column: str = "words",
        output: str = "vectors",
        layers: Layers = "average",
        pooling: str | None = None,
        **settings: Any,
    ) -> None:
        if pooling is not None:
            check_choice("pooling", pooling, POOLINGS)
        self.column, self.output, self.pooling = column, output, pooling
        self._made_with = {"model": os.fspath(model), "layers": layers, **settings}
        self._vectors: TokenVectors | None = TokenVectors(**self._made_with)
        self._digest = model_digest(self._vectors.bilm)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with the column of vectors. Raises ElmoFastError naming the row that holds no sentence."""
        if self.column not in batch:
            raise ElmoFastError(f"column must be one of {', '.join(batch)}; got {self.column!r}")
        if self._vectors is None:
            self._vectors = self._read()
        sentences = [_words(self.column, row, value) for row, value in enumerate(batch[self.column])]
        found = self._vectors(sentences) if self.pooling is None else self._vectors.pooled(sentences, self.pooling)
        return {**batch, self.output: self._as_column(list(found))}

    def _as_column(self, vectors: list[Any]) -> Any:
        return vectors

    def _read(self) -> TokenVectors:
        """In another process. The results must be those of the model that the first one had."""
        found = TokenVectors(**self._made_with)
        if (digest := model_digest(found.bilm)) != self._digest:
            raise ElmoFastError(
                f"model {self._made_with['model']}: wanted that of the first process (sha256 {self._digest[:16]}), "
                f"found another ({digest[:16]}); give all processes the same"
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        """All but the weights; the model's digest tells others, such as the cache of datasets, which model it is."""
        return {**self.__dict__, "_vectors": None}


def _words(column: str, row: int, value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    words = list(value) if isinstance(value, list | tuple | np.ndarray) else [None]
    if not all(isinstance(word, str) for word in words):
        raise ElmoFastError(
            f"column {column!r}, row {row} of the batch: wanted a string or a list of words, found {value!r:.60}"
        )
    return [str(word) for word in words]
