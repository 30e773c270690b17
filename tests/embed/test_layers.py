"""Layers by name or number; a sentence's tokens as one vector."""

import numpy as np
import pytest
import torch

from elmo_fast.embed.layers import chosen_layers, combined_width, layer_numbers, pool
from elmo_fast.errors import ElmoFastError
from elmo_fast.op_choices import POOLS


@pytest.mark.parametrize(
    ("layers", "numbers"),
    [("average", None), ("top", [2]), ("all", [0, 1, 2]), (0, [0]), (2, [2]), ([2, 0], [2, 0]), ((1,), [1])],
)
def test_names_and_numbers(layers, numbers):
    assert layer_numbers(layers, 3) == numbers


@pytest.mark.parametrize("layers", ["mean", "", "2", 3, -1, [0, 3], [], None, True, [True], 1.0, b"top", [[0]]])
def test_what_names_no_layer_is_refused(layers):
    with pytest.raises(ElmoFastError, match='layers must be "average", "top", "all", a number from 0 to 2 or a list'):
        layer_numbers(layers, 3)


def test_combined_is_what_the_names_say_and_as_wide_as_said():
    activations = list(torch.randn(3, 2, 4, 6))
    expected = {
        "average": (activations[0] + activations[1] + activations[2]) / 3,
        "top": activations[2],
        "all": torch.cat(activations, dim=-1),
        1: activations[1],
    }
    for layers, tensor in expected.items():
        torch.testing.assert_close(torch.cat(chosen_layers(activations, layers), dim=-1), tensor)
        assert combined_width(layers, 3, 6) == tensor.shape[-1]
    assert chosen_layers(activations, [2, 0]) == [activations[2], activations[0]]


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
