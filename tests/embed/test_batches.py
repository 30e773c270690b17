"""Batches: nothing lost, limits respected, order restored."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elmo_fast.embed.sentence_vectors import batches
from elmo_fast.embed.token_files import in_order
from elmo_fast.errors import ElmoFastError

LENGTHS = st.lists(st.integers(0, 30), max_size=60)


def texts(lengths):
    return [[f"{i}"] * n for i, n in enumerate(lengths)]


@given(LENGTHS, st.integers(1, 9), st.none() | st.integers(1, 60), st.integers(0, 4))
def test_every_sentence_once_within_the_limits(lengths, batch_size, max_tokens, window):
    sentences = texts(lengths)
    seen = []
    for indices, members in batches(sentences, batch_size=batch_size, max_tokens=max_tokens, window=window):
        assert 0 < len(indices) <= batch_size
        padded = len(members) * max(map(len, members))
        assert max_tokens is None or padded <= max_tokens or len(members) == 1
        assert members == [sentences[i] for i in indices]
        seen.extend(indices)
    assert sorted(seen) == list(range(len(sentences)))
    if window == 0:
        assert seen == sorted(seen)


@given(LENGTHS, st.integers(1, 9), st.integers(1, 4))
def test_windows_are_sorted_by_length_and_order_comes_back(lengths, batch_size, window):
    sentences = texts(lengths)
    cut = list(batches(sentences, batch_size=batch_size, window=window))
    for start in range(0, len(cut), window):
        actual = [len(s) for batch in cut[start : start + window] for s in batch.sentences]
        assert actual == sorted(actual, reverse=True)
    ordered = []
    put = in_order(ordered.append)
    for batch in cut:
        for pair in zip(*batch, strict=True):
            put(*pair)
    assert ordered == sentences


def test_without_limits_batches_are_as_full_as_can_be():
    assert [len(b.indices) for b in batches(texts([1] * 10), batch_size=4)] == [4, 4, 2]
    assert [b.indices for b in batches(texts([3, 3, 5, 1, 9, 1]), max_tokens=10)] == [[0, 1], [2, 3], [4], [5]]


def test_streaming_takes_no_more_than_a_window():
    """Batches come out before the stream has ended: at most one window is read ahead."""
    taken = 0

    def stream():
        nonlocal taken
        while True:
            taken += 1
            yield ["a"]

    next(batches(stream(), batch_size=2, window=3))
    assert taken == 6


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"max_tokens": 0}])
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(ElmoFastError, match=f"{next(iter(wrong))} must be"):
        list(batches([["a"]], **wrong))


def test_a_batch_size_beyond_all_texts_is_one_batch():
    assert [batch.indices for batch in batches([["a"], ["a", "b"]], batch_size=10**30, window=1)] == [[1, 0]]
