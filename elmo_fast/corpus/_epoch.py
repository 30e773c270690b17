"""The order of an epoch's sentences, and the places of its stream in the stored text."""

from typing import NamedTuple

import numpy as np

from elmo_fast.corpus.encoding import Corpus, Places

_SENTENCES_AT_ONCE = 1 << 20


class Runs(NamedTuple):
    """Stretches of the stored text whose concatenation is what was asked for.

    first: where each begins in the concatenated shards; lengths: its number of values, both [runs] int64.
    """

    first: Places
    lengths: Places


class Epoch:
    """The stream v of one epoch: all sentences in the order drawn from (seed, epoch), with boundaries around them.

    It holds 16 bytes per sentence. seed: None keeps the order of the text.

    begins: the position of each sentence's boundary in the concatenated shards; bounds: its position in v, and the
    length of v.
    """

    def __init__(self, corpus: Corpus, seed: int | None, epoch: int) -> None:
        count = corpus.sentences
        # The stream's last boundary counts as a sentence; the text's first boundary serves for it.
        self.begins, self.bounds = np.arange(count + 1), np.zeros(count + 2, np.int64)
        self.begins[-1] = 0
        if seed is not None:
            # The same as default_rng(...).permutation(count), in place.
            np.random.default_rng((seed, epoch)).shuffle(self.begins[:-1])
        for i in range(0, count, _SENTENCES_AT_ONCE):
            some = slice(i, min(i + _SENTENCES_AT_ONCE, count))
            self.begins[some], self.bounds[1:][some] = corpus.places(self.begins[some])
        self.bounds[-1] = 1
        np.cumsum(self.bounds, out=self.bounds)

    def runs(self, low: Places, high: Places, width: int, *, backward: bool) -> Runs:
        """The places of v[low .. high] of each row, or of v[high .. low] read backward, then boundaries up to `width`.

        A backward run begins at its last number and is read toward smaller places. low, high: [rows], low <= high.
        """
        begin = np.searchsorted(self.bounds[1:], low, side="right")
        end = np.searchsorted(self.bounds[1:], high, side="right")
        counts, missing = end - begin + 1, width - 1 - (high - low)
        total = counts + missing
        at = np.cumsum(total) - total
        # Sentence numbers increase, or decrease, by one from run to run of a row.
        turns = np.arange(int(total.sum()))
        sentences = np.repeat(end + at, total) - turns if backward else np.repeat(begin - at, total) + turns
        if missing.any():
            # One boundary at a time: the text begins with one.
            beyond = turns - np.repeat(at, total) >= np.repeat(counts, total)
            sentences[beyond] = 0
        first = self.begins[sentences]
        lengths = self.bounds[sentences + 1] - self.bounds[sentences]
        if backward:
            first += lengths - 1
        # A row may begin and end inside a sentence.
        before, after = low - self.bounds[begin], self.bounds[end + 1] - 1 - high
        entered, left = (-after, before) if backward else (before, after)
        first[at] += entered
        lengths[at] -= np.abs(entered)
        lengths[at + counts - 1] -= left
        if missing.any():
            first[beyond], lengths[beyond] = 0, 1
        return Runs(first, lengths)
