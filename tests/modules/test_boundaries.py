"""Markers of sentences against a loop over the rows."""

import pytest
import torch

from elmo_fast.modules import add_sentence_boundary_token_ids, remove_sentence_boundaries

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


def test_removing_clears_what_lies_past_the_sentence():
    """Positions of the end marker and of padding come out as zeros whatever they held."""
    inner, mask = remove_sentence_boundaries(torch.ones(2, 6, 3), mask_of([6, 3], 6))
    assert inner[1].tolist() == [[1.0] * 3] + [[0.0] * 3] * 3
    assert mask.tolist() == [[True] * 4, [True, False, False, False]]


@pytest.mark.parametrize("time", [0, 1])
def test_nothing_but_markers(time):
    added, mask = add_sentence_boundary_token_ids(torch.zeros(2, time, 3).long(), mask_of([0, 0], time), 5, 6)
    assert added[:, 0].eq(5).all()
    assert added[:, 1].eq(6).all()
    inner, inner_mask = remove_sentence_boundaries(added, mask)
    assert inner.shape == (2, time, 3)
    assert not inner_mask.any()
