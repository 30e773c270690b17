"""Streams against expectations worked out by hand."""

import itertools

import numpy as np
import pytest

from elmo_fast.pretrain.corpus import Corpus
from elmo_fast.pretrain.streams import DirectionStream, SentenceOrder, single_pass, training_batches

BEGIN, END, UNKNOWN = 0, 1, 2


def corpus(*sentences: list[int], vocabulary_size: int = 100) -> Corpus:
    return Corpus(
        types=[f"w{i}" for i in range(vocabulary_size + 10)],
        ids=np.array(list(itertools.chain(*sentences)), np.int32),
        starts=np.cumsum([0, *map(len, sentences)]),
        vocabulary_size=vocabulary_size,
        begin=BEGIN,
        end=END,
        unknown=UNKNOWN,
    )


def windows(stream, count=None):
    return [(w.inputs.tolist(), w.targets.tolist(), w.filled.tolist()) for w in itertools.islice(stream, count)]


TEXT = corpus([3, 4, 5], [6], [7, 8])


def test_rows_take_sentences_in_turn_and_pack_them_without_padding():
    """Row 0 takes sentence 0; row 1 takes 1 and, being short, 2; then row 0 must wait for its own sentence to end."""
    endless = DirectionStream(TEXT, SentenceOrder(3, seed=None, direction=0), batch_size=2, unroll_steps=3)
    assert windows(endless, 3) == [
        ([[0, 3, 4], [0, 6, 0]], [[3, 4, 5], [6, 1, 7]], [3, 3]),
        ([[5, 0, 3], [7, 8, 0]], [[1, 3, 4], [8, 1, 6]], [3, 3]),
        ([[4, 5, 0], [6, 0, 3]], [[5, 1, 7], [1, 3, 4]], [3, 3]),
    ]


def test_the_backward_stream_reads_each_sentence_from_its_end_and_swaps_the_markers():
    endless = DirectionStream(TEXT, SentenceOrder(3, seed=None, direction=1), 1, 4, reverse=True)
    assert windows(endless, 2) == [
        ([[1, 5, 4, 3]], [[5, 4, 3, 0]], [4]),
        ([[1, 6, 1, 8]], [[6, 0, 8, 7]], [4]),
    ]


def test_a_sentence_longer_than_a_window_goes_on_in_the_next():
    endless = DirectionStream(corpus([3, 4, 5, 6, 7]), SentenceOrder(1, None, 0), 1, 2)
    assert [w[0] for w in windows(endless, 4)] == [[[0, 3]], [[4, 5]], [[6, 7]], [[0, 3]]]


def test_a_word_outside_the_vocabulary_is_read_as_itself_and_predicted_as_unknown():
    stream = DirectionStream(corpus([3, 101, 4]), SentenceOrder(1, None, 0), 1, 4)
    assert windows(stream, 1) == [([[0, 3, 101, 4]], [[3, UNKNOWN, 4, 1]], [4])]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("batch_size", "unroll_steps"), [(1, 1), (2, 3), (3, 20), (7, 2)])
def test_a_single_pass_shows_every_token_once(reverse, batch_size, unroll_steps):
    """Every sentence of n words yields n + 1 predictions, whatever the shape of the batches."""
    targets = []
    for window in single_pass(TEXT, batch_size, unroll_steps, reverse):
        for row, filled in zip(window.targets, window.filled, strict=True):
            targets += row[:filled].tolist()
    assert sorted(targets) == sorted([3, 4, 5, 6, 7, 8] + 3 * [BEGIN if reverse else END])


def test_rows_that_have_run_out_say_so():
    assert windows(single_pass(corpus([3], [4, 5]), 2, 2, reverse=False)) == [
        ([[0, 3], [0, 4]], [[3, 1], [4, 5]], [2, 2]),
        ([[0, 0], [5, 0]], [[0, 0], [1, 0]], [0, 1]),
    ]


def test_equal_seeds_give_equal_batches_and_the_directions_see_different_orders():
    text = corpus(*[[3 + i] for i in range(40)])

    def take(seed, shuffle=True):
        return [
            (b.forward.inputs.tolist(), b.backward.inputs.tolist())
            for b in itertools.islice(training_batches(text, 2, 5, seed=seed, shuffle=shuffle), 6)
        ]

    assert take(1) == take(1)
    assert take(1) != take(2)
    forward, backward = zip(*take(1), strict=True)
    words = [[w for w in np.ravel(side) if w > 1] for side in (forward, backward)]
    assert words[0] != words[1]
    assert take(1, shuffle=False) == take(2, shuffle=False)


def test_every_pass_of_a_shuffled_order_is_a_permutation_of_its_own():
    order = list(itertools.islice(iter(SentenceOrder(10, seed=3, direction=0)), 20))
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10))
    assert order[:10] != order[10:]
