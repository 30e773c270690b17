"""One vector per sentence from the vectors of its tokens."""

from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import check_choice
from elmo_fast.op_choices import POOLS


def pool(vectors: npt.NDArray[Any], mode: str = "mean") -> npt.NDArray[Any]:
    """Reduce the vectors of a sentence's tokens to one vector: [..., T, 2D] to [..., 2D], of the same dtype.

    Args:
        vectors: of one sentence, in the order of its tokens, without padding.
        mode: "mean" of the tokens, their "max" in each dimension, or "first_last": the forward half of the last token
            and the backward half of the first one, where each direction has read the whole sentence.

    A sentence without tokens gives zeros. Raises ElmoFastError for an unknown mode.
    """
    check_choice("pool", mode, POOLS)
    tokens, width = vectors.shape[-2:]
    if not tokens:
        return np.zeros((*vectors.shape[:-2], width), vectors.dtype)
    if mode == "mean":
        return vectors.mean(-2, dtype=np.float32).astype(vectors.dtype, copy=False)
    if mode == "max":
        return vectors.max(-2)
    return np.concatenate([vectors[..., -1, : width // 2], vectors[..., 0, width // 2 :]], axis=-1)
