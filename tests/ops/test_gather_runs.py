"""gather_runs: every number from its place, up and down, over several parts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.ops import gather_runs
from elmo_fast.ops.gather_runs import _indices


def arguments(sizes, runs):
    """Parts of 0, 1, 2 ..., runs of (first, length, upward) sorted upward first, and what they read."""
    whole = torch.arange(sum(sizes), dtype=torch.int32)
    runs = sorted(runs, key=lambda run: not run[2])
    truth = [first + i * (1 if up else -1) for first, length, up in runs for i in range(length)]
    first, lengths = (torch.tensor([run[k] for run in runs], dtype=torch.int64) for k in (0, 1))
    return (whole.split(sizes), first, lengths, sum(run[2] for run in runs)), truth


@st.composite
def cases(draw):
    """Parts, some empty or of one number, and runs within them that touch both ends."""
    sizes = draw(st.lists(st.integers(0, 90), min_size=1, max_size=4).filter(any))
    bounds = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    runs = []
    for _ in range(draw(st.integers(0, 40))):
        part = draw(st.sampled_from([i for i, size in enumerate(sizes) if size]))
        low, high = sorted(draw(st.integers(bounds[part], bounds[part + 1] - 1)) for _ in "ab")
        up = draw(st.booleans())
        runs.append((low if up else high, draw(st.sampled_from([high - low + 1, 0])), up))
    return sizes, runs


@settings(deadline=None)
@given(case=cases())
def test_every_number_comes_from_its_place(case):
    given_, truth = arguments(*case)
    actual = gather_runs(*given_)
    assert actual.dtype == torch.int32
    assert actual.tolist() == truth


def test_strided_parts_and_runs():
    values = torch.arange(40, dtype=torch.int32)[::2]
    runs = torch.tensor([[3, 2], [9, 3]])
    actual = gather_runs([values], runs[:, 0], runs[:, 1], 1)
    assert actual.tolist() == [6, 8, 18, 16, 14]


def test_a_run_of_no_numbers_may_begin_anywhere():
    values, first = [torch.arange(5, dtype=torch.int32)], torch.tensor([-3, 1, 99, 2**63 - 1])
    actual = gather_runs(values, first, torch.tensor([0, 2, 0, 0]), 2)
    assert actual.tolist() == [1, 2]


@pytest.mark.parametrize("lengths", [(2**63 - 1, 2), (2**62, 2**62), (-(2**63), 3), (2**31, -(2**31)), (-1, 4)])
def test_lengths_whose_sum_overflows_or_hides_them_are_an_error(lengths):
    values = [torch.zeros(6, dtype=torch.int32)]
    with pytest.raises(IndexError, match=r"gather_runs: run 0 begins at 1, has .* numbers and leaves the part"):
        gather_runs(values, torch.tensor([1, 2]), torch.tensor(lengths), 1)


@pytest.mark.parametrize(
    "run", [(-1, 1, True), (9, 2, True), (3, 2, True), (4, 2, False), (10, 1, True), (0, 2, False), (2, -1, True)]
)
def test_a_run_that_leaves_its_part_is_an_error(run):
    """Parts of 4 and 6 numbers; the run of too many numbers stands between good ones."""
    (parts, first, lengths, upward), _ = arguments([4, 6], [(0, 1, True), run, (5, 2, False)])
    with pytest.raises(IndexError, match="leaves the part of values in which it begins"):
        gather_runs(parts, first, lengths, upward)


@pytest.mark.parametrize("far", [0, 2**31 - 40, 2**31, 2**40])
def test_places_of_any_size(far):
    """Wherever the text stands."""
    first, lengths = torch.tensor([5, 100, 30, 7]) + far, torch.tensor([3, 2, 4, 1])
    places = _indices(first, lengths, 2, 10, torch.device("cpu"))
    assert (places - far).tolist() == [5, 6, 7, 100, 101, 30, 29, 28, 27, 7]
