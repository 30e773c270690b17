"""Layers mixed, and freed of the markers."""

import pytest
import torch

from elmo_fast import ScalarMix
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.boundaries import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmo_fast.modules.scalar_mix import mixes


def test_several_mixes_in_one_pass_equal_one_by_one():
    layers = [torch.randn(2, 3, 4, requires_grad=True) for _ in range(3)]
    modules = [ScalarMix(3), ScalarMix(3, initial_scalar_parameters=[1.0, -2.0, 0.5])]
    together = mixes(modules, layers, None)
    for k, module in enumerate(modules):
        torch.testing.assert_close(together[k], module(layers))
    together.square().sum().backward()
    for parameter in [*modules[0].parameters(), *modules[1].parameters(), *layers]:
        assert parameter.grad.any()


def test_fixed_parameters():
    mix = ScalarMix(3, initial_scalar_parameters=[-9e10, 1, -9e10], trainable=False)
    layers = [torch.randn(2, 3, 4) for _ in range(3)]
    torch.testing.assert_close(mix(layers), layers[1])
    assert not any(p.requires_grad for p in mix.parameters())


def test_what_cannot_be_mixed():
    with pytest.raises(ElmoFastError, match="mixture_size=3 layers; got 5"):
        ScalarMix(3)([torch.randn(1, 2, 3)] * 5)
    with pytest.raises(ElmoFastError, match="mixture_size=3 numbers; got 2"):
        ScalarMix(3, initial_scalar_parameters=[1.0, 2.0])
    with pytest.raises(ElmoFastError, match="needs the mask"):
        ScalarMix(1, do_layer_norm=True)([torch.randn(1, 2, 3)])
    with pytest.raises(ElmoFastError, match="statistics must be one of allennlp, bilm"):
        ScalarMix(3, statistics="tensorflow")


LENGTHS = [0, 1, 3, 5]


def mask_of(lengths, time=5):
    return torch.arange(time) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("mask", [mask_of(LENGTHS), mask_of(LENGTHS).float()], ids=["bool", "float"])
@pytest.mark.parametrize("width", [None, 3])
def test_added_markers_equal_a_loop_and_removing_undoes_it(mask, width):
    """Ids [B, T] and rows of them [B, T, C], int32 as well; an empty sentence becomes both markers."""
    shape = (4, 5) if width is None else (4, 5, width)
    ids = torch.randint(1, 9, shape, dtype=torch.int32) * mask.int().reshape(4, 5, *[1] * (len(shape) - 2))
    begin, end = (100, 200) if width is None else (torch.tensor([7, 8, 9]), torch.tensor([1, 1, 2]))
    added, new_mask = add_sentence_boundary_token_ids(ids, mask, begin, end)
    assert added.dtype == torch.int32
    for row, length in enumerate(LENGTHS):
        assert (added[row, 0] == begin).all()
        assert (added[row, length + 1] == end).all()
        assert torch.equal(added[row, 1 : length + 1], ids[row, :length])
        assert not added[row, length + 2 :].any()
        assert new_mask[row].tolist() == [True] * (length + 2) + [False] * (5 - length)
    if width is not None:
        inner, inner_mask = remove_sentence_boundaries(added, new_mask)
        assert torch.equal(inner, ids)
        assert torch.equal(inner_mask, mask.bool())
