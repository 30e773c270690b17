"""A sentence's tokens as one vector."""

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.pooling import pool
from elmo_fast.op_choices import POOLS

TOKENS = np.array([[1, 6, 3, 4], [5, 2, 7, 8], [3, 1, 2, 0]], np.float32)  # [T, 2D]
POOLED = {"mean": [3, 3, 4, 4], "max": [5, 6, 7, 8], "first_last": [3, 1, 3, 4]}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("mode", POOLS)
def test_pools_one_layer_and_several(mode, dtype):
    one = pool(TOKENS.astype(dtype), mode)
    assert one.dtype == dtype
    assert one.tolist() == POOLED[mode]
    several = pool(np.stack([TOKENS, 2 * TOKENS]).astype(dtype), mode)
    assert several.tolist() == [one.tolist(), (2 * one).tolist()]
    assert pool(np.empty((3, 0, 4), dtype), mode).tolist() == [[0] * 4] * 3


def test_a_long_sentence_in_float16_has_its_mean():
    assert pool(np.full((3000, 2), 40, np.float16), "mean").tolist() == [40, 40]


def test_an_unknown_mode_is_named():
    with pytest.raises(ElmoFastError, match=r"^pool must be one of mean, max, first_last; got 'min'$"):
        pool(TOKENS, "min")
