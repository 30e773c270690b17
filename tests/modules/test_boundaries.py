"""Markers around sentences: equal to a plain loop over the rows."""

import pytest
import torch

from elmo_fast.modules import add_sentence_boundary_token_ids, remove_sentence_boundaries
from elmo_fast.modules.boundaries import add_boundaries_to_vectors

LENGTHS = [3, 0, 5, 1]


def mask_of(lengths, time=5):
    return torch.arange(time) < torch.tensor(lengths)[:, None]


def test_added_ids_equal_a_loop():
    mask = mask_of(LENGTHS)
    ids = torch.randint(1, 9, (4, 5)) * mask
    added, new_mask = add_sentence_boundary_token_ids(ids, mask, 100, 200)
    for row, length in enumerate(LENGTHS):
        words = ids[row, :length].tolist()
        assert added[row].tolist() == [100, *words, 200] + [0] * (5 - length)
        assert new_mask[row].tolist() == [True] * (length + 2) + [False] * (5 - length)


def test_added_rows_equal_a_loop_and_may_be_int32():
    mask = mask_of(LENGTHS).long()
    ids = torch.randint(1, 9, (4, 5, 3), dtype=torch.int32) * mask[..., None].int()
    begin, end = torch.tensor([7, 8, 9]), torch.tensor([1, 1, 2])
    added, new_mask = add_sentence_boundary_token_ids(ids, mask, begin, end)
    assert added.dtype == torch.int32
    for row, length in enumerate(LENGTHS):
        assert added[row, 0].tolist() == [7, 8, 9]
        assert added[row, length + 1].tolist() == [1, 1, 2]
        assert torch.equal(added[row, 1 : length + 1], ids[row, :length])
        assert not added[row, length + 2 :].any()
    assert new_mask.sum(dim=1).tolist() == [length + 2 for length in LENGTHS]


def test_removing_undoes_adding():
    mask = mask_of(LENGTHS)
    vectors = torch.rand(4, 5, 3) * mask[..., None]
    added, new_mask = add_boundaries_to_vectors(vectors, mask, torch.full((3,), -1.0), torch.full((3,), -2.0))
    inner, inner_mask = remove_sentence_boundaries(added, new_mask)
    assert torch.equal(inner, vectors)
    assert torch.equal(inner_mask, mask)


def test_removing_clears_what_lies_past_the_sentence():
    """Positions of the end marker and of padding come out as zeros whatever they held."""
    inner, mask = remove_sentence_boundaries(torch.ones(2, 6, 3), mask_of([6, 3], 6))
    assert inner[1].tolist() == [[1.0] * 3] + [[0.0] * 3] * 3
    assert mask.tolist() == [[True] * 4, [True, False, False, False]]


def test_vectors_without_a_positive_component_are_words():
    """AllenNLP took such a cached vector for padding."""
    vectors = -torch.ones(1, 2, 3)
    _, mask = add_boundaries_to_vectors(vectors, torch.ones(1, 2), -torch.ones(3), -torch.ones(3))
    assert mask.all()


@pytest.mark.parametrize("time", [0, 1])
def test_nothing_but_markers(time):
    added, mask = add_sentence_boundary_token_ids(torch.zeros(2, time, 3).long(), mask_of([0, 0], time), 5, 6)
    assert added[:, 0].eq(5).all()
    assert added[:, 1].eq(6).all()
    inner, inner_mask = remove_sentence_boundaries(added, mask)
    assert inner.shape == (2, time, 3)
    assert not inner_mask.any()
