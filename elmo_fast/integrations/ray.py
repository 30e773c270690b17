"""Vectors of a Ray dataset's sentences: a class for `map_batches`, of which each actor holds the model."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from elmo_fast.errors import require
from elmo_fast.integrations._columns import ColumnVectors

require("ray", "ray", __name__)


class ElmoBatches(ColumnVectors):
    """Words in, vectors out: `rows.map_batches(ElmoBatches, fn_constructor_kwargs={"model": ...}, concurrency=2)`.

    Each actor reads the model once; `threads` are those of an actor, of which Ray does not know (`num_cpus`).

    Args: as in ColumnVectors; threads: of torch's in each actor; None: torch's choice.

    Raises: ElmoFastError, CheckpointError.
    """

    def __init__(self, model: str, *arguments: Any, threads: int | None = None, **settings: Any) -> None:
        if threads is not None:
            import torch

            from elmo_fast.threads import check_threads

            check_threads(threads, "threads")
            torch.set_num_threads(threads)
        super().__init__(model, *arguments, **settings)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with the column of vectors. Raises ElmoFastError naming the row that holds no sentence."""
        made = super().__call__(batch)
        # Ray gives lists of words as arrays, and takes those back only as pickled objects.
        made[self.column] = [each if isinstance(each, str) else list(each) for each in batch[self.column]]
        return made

    def _as_column(self, vectors: list[Any]) -> Any:
        """An array of arrays: Ray keeps it as tensors of different lengths."""
        column = np.empty(len(vectors), object)
        column[:] = vectors
        return column if self.pooling is None else np.stack(vectors)
