"""Streams against bilm-tf's generator, and what is promised of rows, steps, epochs, processes and places."""

import itertools
import random
import threading

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from elmo_fast.corpus import encode, streams
from elmo_fast.corpus.streams import Epoch, Stream
from tests.corpus.texts import TEXTS, VOCABULARY, known, pairs, resharded

ROWS, STEPS, SEEDS = st.integers(1, 9), st.integers(1, 8), st.one_of(st.none(), st.integers(0, 3))
LONG = [[f"w{i % 7}", *(f"w{j % 11}" for j in range(i % 6))] for i in range(60)]


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    """Slabs of a few steps, so that small texts have several."""
    monkeypatch.setattr(streams, "SLAB", 60)


def equal(first, second):
    return (
        torch.equal(first.types, second.types)
        and torch.equal(first.targets, second.targets)
        and np.array_equal(first.filled, second.filled)
        and first.words == second.words
    )


def all_batches(stream, epochs=2):
    return [stream.batch(epoch, step) for epoch in range(epochs) for step in range(stream.steps_per_epoch)]


@given(TEXTS, STEPS)
def test_one_row_in_file_order_is_bilm_tfs_stream(text, steps):
    """Inputs are all of `<S> w ... </S>` but the last, targets all but the first; backward sentences are reversed.

    (Source: bilm-tf, bilm/data.py, _get_batch and LMDataset.)
    """
    corpus = encode(text, VOCABULARY)
    stream = Stream(corpus, 1, steps, seed=None)
    forward = [["<S>", *sentence, "</S>"] for sentence in text]
    for shown, whole in zip(pairs(corpus, stream), (forward, [each[::-1] for each in forward[::-1]]), strict=True):
        expected = [(read, known(word)) for each in whole for read, word in itertools.pairwise(each)]
        assert shown == [expected]


@given(TEXTS, ROWS, STEPS, SEEDS)
def test_rows_are_read_from_step_to_step_as_the_definition_has_them(text, rows, steps, seed):
    """Row r, [a, b): forward v[a .. b-1] -> v[a+1 .. b], backward v[b] .. v[a+1] -> v[b-1] .. v[a]."""
    corpus = encode(text, VOCABULARY)
    stream = Stream(corpus, rows, steps, seed=seed)
    order = range(len(text)) if seed is None else np.random.default_rng((seed, 1)).permutation(len(text))
    v = [word for index in order for word in [None, *text[index]]] + [None]
    positions = len(v) - 1
    assert np.diff(stream.row_bounds).max() - np.diff(stream.row_bounds).min() <= 1
    assert (np.diff(stream.row_bounds)[: positions % rows] == positions // rows + 1).all()
    assert (stream.row_bounds[0], stream.row_bounds[-1]) == (0, positions)
    shown = pairs(corpus, stream, 1)
    for row, (a, b) in enumerate(itertools.pairwise(stream.row_bounds.tolist())):
        forward = [
            ("<S>" if x is None else x, "</S>" if y is None else known(y))
            for x, y in zip(v[a:b], v[a + 1 : b + 1], strict=True)
        ]
        back, ahead = v[a:b][::-1], v[a + 1 : b + 1][::-1]
        backward = [
            ("</S>" if x is None else x, "<S>" if y is None else known(y)) for x, y in zip(ahead, back, strict=True)
        ]
        assert (shown[0][row], shown[1][row]) == (forward, backward)


@given(TEXTS, ROWS, STEPS)
def test_what_is_not_filled_is_a_boundary_and_is_counted_out(text, rows, steps):
    corpus = encode(text, VOCABULARY)
    stream = Stream(corpus, rows, steps, seed=0)
    total = 0
    for step in range(stream.steps_per_epoch):
        batch = stream.batch(0, step)
        assert batch.types.shape == batch.targets.shape == (2, rows, steps)
        assert batch.types.dtype == batch.targets.dtype == torch.int64
        assert step + 1 == stream.steps_per_epoch or (batch.filled == steps).all()
        assert batch.words == batch.filled.sum() > 0
        empty = torch.arange(steps) >= torch.from_numpy(batch.filled)[:, None]
        for values, markers in ((batch.types, ("<S>", "</S>")), (batch.targets, ("</S>", "<S>"))):
            for way, marker in enumerate(markers):
                assert (values[way][empty] == VOCABULARY.id(marker)).all()
        total += batch.words
    assert total == corpus.positions


@given(TEXTS, ROWS, STEPS, SEEDS, st.data())
def test_some_rows_are_a_slice_of_all(text, rows, steps, seed, data):
    """A process that holds rows [i, j) reads what one that holds all has there, and counts the words of all."""
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    corpus = encode(text, VOCABULARY)
    whole, part = (
        Stream(corpus, rows, steps, seed=seed),
        Stream(corpus, rows, steps, seed=seed, first_row=first, row_count=count),
    )
    assert part.steps_per_epoch == whole.steps_per_epoch
    for mine, all_rows in zip(all_batches(part), all_batches(whole), strict=True):
        mine_of = slice(first, first + count)
        assert torch.equal(mine.types, all_rows.types[:, mine_of])
        assert torch.equal(mine.targets, all_rows.targets[:, mine_of])
        assert np.array_equal(mine.filled, all_rows.filled[mine_of])
        assert mine.words == all_rows.words


@given(TEXTS, st.integers(1, 3), STEPS, st.integers(1, 3))
def test_distinct_words_of_each_part(text, rows, steps, parts):
    """Each once, the longest first, padded; the order by which gradients are summed is that of a stable sort."""
    corpus = encode(text, VOCABULARY)
    stream = Stream(corpus, rows * parts, steps, seed=0, distinct_parts=parts)
    for step in range(stream.steps_per_epoch):
        batch = stream.batch(0, step)
        assert len(batch.distinct) == parts
        for part, distinct in enumerate(batch.distinct):
            types = batch.types[:, part * rows : (part + 1) * rows].flatten()
            used = int(distinct.inverse.max()) + 1
            assert torch.equal(distinct.words[distinct.inverse], types)
            assert sorted(distinct.words[:used].tolist()) == types.unique().tolist()
            assert len(distinct.words) == streams.PADDED_TO
            assert (distinct.words[used:] == distinct.words[used - 1]).all()
            lengths = [len(word.encode()) for word in corpus.types.words(distinct.words[:used].tolist())]
            assert lengths == sorted(lengths, reverse=True)
            for given_order, sort in zip(distinct[2:], torch.sort(distinct.inverse, stable=True), strict=True):
                assert torch.equal(given_order, sort)


def test_any_order_of_access_gives_the_same_batches():
    corpus = encode(LONG, VOCABULARY)
    stream = Stream(corpus, 3, 4, seed=1)
    expected = {(e, s): stream.batch(e, s) for e in range(3) for s in range(stream.steps_per_epoch)}
    again = Stream(corpus, 3, 4, seed=1)
    for where in random.Random(0).choices(sorted(expected), k=300):
        assert equal(again.batch(*where), expected[where])


def test_reading_ahead_in_a_thread_gives_the_same_batches():
    """As with a GPU, which computes meanwhile."""
    corpus = encode(LONG, VOCABULARY)
    stream, expected = Stream(corpus, 3, 4, seed=1, ahead=True), Stream(corpus, 3, 4, seed=1)
    for where in [*itertools.product(range(3), range(stream.steps_per_epoch)), (0, 5), (2, 0), (1, 7)]:
        assert equal(stream.batch(*where), expected.batch(*where))
    ahead = [stream.batch(0, step) and stream._next[0] for step in range(stream.steps_per_epoch)]
    slabs = -(-stream.steps_per_epoch // 2)
    assert ahead == [(0, step // 2 + 1) if step // 2 + 1 < slabs else (1, 0) for step in range(len(ahead))]


def test_what_a_step_samples_is_sampled_with_the_reading():
    """Once for each step, by its number over all epochs; in the thread that reads ahead, where there is one."""
    sampled, threads = [], set()

    def sample(number):
        sampled.append(number)
        threads.add(threading.current_thread().name)
        return -number

    for ahead, expected in ((False, {"MainThread"}), (True, {"elmo_fast-corpus_0"})):
        sampled.clear()
        threads.clear()
        stream = Stream(encode(LONG, VOCABULARY), 3, 4, seed=1, ahead=ahead, sample=sample)
        steps = stream.steps_per_epoch
        got = [stream.batch(*divmod(number, steps)).samples for number in range(2 * steps)]
        assert got == [-number for number in range(2 * steps)]
        assert sampled[: 2 * steps] == list(range(2 * steps))
        assert threads == expected


@pytest.mark.parametrize("cuts", [[], [9, 30]])
def test_an_epoch_is_made_part_by_part(monkeypatch, cuts):
    corpus = resharded(encode(LONG, VOCABULARY), cuts)
    whole = Epoch(corpus, 3, 0)
    monkeypatch.setattr(streams, "_SENTENCES_AT_ONCE", 7)
    parts = Epoch(corpus, 3, 0)
    assert np.array_equal(whole.begins, parts.begins)
    assert np.array_equal(whole.bounds, parts.bounds)


def test_an_epoch_holds_sixteen_bytes_per_sentence():
    corpus = encode([["a"]] * 100_000, VOCABULARY)
    epoch = Epoch(corpus, 0, 0)
    held = sum(value.nbytes for value in vars(epoch).values() if isinstance(value, np.ndarray))
    assert held <= 16 * 100_000 + 100
