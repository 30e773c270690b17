"""The order of an epoch's sentences, and where in the stored text the numbers of its stream stand."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.corpus.encoding import Corpus

Ints = npt.NDArray[np.int64]
_SENTENCES_AT_ONCE = 1 << 20


class Runs(NamedTuple):
    """Stretches of the stored text that, laid end to end, are what was asked for.

    first: where each begins in the shards laid end to end; lengths: how many numbers it has, both [runs] int64.
    """

    first: Ints
    lengths: Ints


class Epoch:
    """The stream v of one epoch: all sentences in the order drawn from (seed, epoch), a boundary before each and after.

    16 bytes per sentence are held. seed: None keeps the order of the text.

    begins: where each sentence's boundary stands in the shards laid end to end; bounds: where it stands in v, and the
    length of v.
    """

    def __init__(self, corpus: Corpus, seed: int | None, epoch: int) -> None:
        count = corpus.sentences
        # The stream's last boundary counts as a sentence; the text's first boundary will do for it.
        self.begins, self.bounds = np.arange(count + 1), np.zeros(count + 2, np.int64)
        self.begins[-1] = 0
        if seed is not None:
            # As default_rng(...).permutation(count), in place.
            np.random.default_rng((seed, epoch)).shuffle(self.begins[:-1])
        for i in range(0, count, _SENTENCES_AT_ONCE):
            some = slice(i, min(i + _SENTENCES_AT_ONCE, count))
            self.begins[some], self.bounds[1:][some] = corpus.places(self.begins[some])
        self.bounds[-1] = 1
        np.cumsum(self.bounds, out=self.bounds)

    def runs(self, low: Ints, high: Ints, width: int, *, backward: bool) -> Runs:
        """Where v[low .. high] of each row stands, or v[high .. low] read from its end, then boundaries up to `width`.

        A backward run begins at its last number and is read towards smaller places. low, high: [rows], low <= high.
        """
        begin = np.searchsorted(self.bounds[1:], low, side="right")
        end = np.searchsorted(self.bounds[1:], high, side="right")
        counts, missing = end - begin + 1, width - 1 - (high - low)
        total = counts + missing
        at = np.cumsum(total) - total
        # Sentence numbers rise, or fall, by one from run to run of a row.
        turns = np.arange(int(total.sum()))
        sentences = np.repeat(end + at, total) - turns if backward else np.repeat(begin - at, total) + turns
        if missing.any():
            # A boundary at a time: the text begins with one.
            beyond = turns - np.repeat(at, total) >= np.repeat(counts, total)
            sentences[beyond] = 0
        first = self.begins[sentences]
        lengths = self.bounds[sentences + 1] - self.bounds[sentences]
        if backward:
            first += lengths - 1
        # A row is entered and left within a sentence.
        before, after = low - self.bounds[begin], self.bounds[end + 1] - 1 - high
        entered, left = (-after, before) if backward else (before, after)
        first[at] += entered
        lengths[at] -= np.abs(entered)
        lengths[at + counts - 1] -= left
        if missing.any():
            first[beyond], lengths[beyond] = 0, 1
        return Runs(first, lengths)
