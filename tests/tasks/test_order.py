"""The order of training and the nested shares."""

import itertools

import numpy as np
import pytest

from elmo_fast.tasks.data import epoch_batches, fixed_batches, shared_subset

LENGTHS = np.random.default_rng(0).integers(1, 40, 203).tolist()


@pytest.mark.parametrize("make", [lambda: epoch_batches(LENGTHS, 16, 0, 3), lambda: fixed_batches(LENGTHS, 16)])
def test_every_sentence_once_in_batches_of_like_lengths(make):
    """No sentence is lost or doubled, and next to nothing of a batch is padding."""
    batches = make()
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(len(LENGTHS)))
    assert max(map(len, batches)) == 16
    cells = sum(len(batch) * max(LENGTHS[i] for i in batch) for batch in batches)
    assert cells < 1.15 * sum(LENGTHS)


def test_an_epoch_is_told_by_seed_and_number():
    """The same again; other batches for another epoch and another seed."""
    told = [epoch_batches(LENGTHS, 16, seed, epoch) for seed, epoch in
            [(0, 0), (0, 0), (0, 1), (1, 0)]]  # fmt: skip
    assert told[0] == told[1]
    assert told[0] != told[2]
    assert told[0] != told[3]
    assert sorted(map(sorted, told[0])) != sorted(map(sorted, told[2]))


def test_shares_are_nested_and_of_their_size():
    """1 % within 10 % within all; another seed draws others; of a few sentences, one stays."""
    subsets = [set(shared_subset(1000, share, 5)) for share in (0.01, 0.1, 0.5, 1.0)]
    assert [len(each) for each in subsets] == [10, 100, 500, 1000]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(subsets))
    assert set(shared_subset(1000, 0.1, 6)) != subsets[1]
    assert len(shared_subset(3, 0.01, 0)) == 1
