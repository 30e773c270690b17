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
        order: npt.NDArray[np.integer] = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
        if seed is not None:
            # As default_rng(...).permutation(count), in fewer bytes.
            np.random.default_rng((seed, epoch)).shuffle(order)
        # The stream's last boundary counts as a sentence; the text's first boundary will do for it.
        self.begins, self.bounds = np.zeros(count + 1, np.int64), np.zeros(count + 2, np.int64)
        for i in range(0, count, _SENTENCES_AT_ONCE):
            begins, lengths = corpus.places(order[i : i + _SENTENCES_AT_ONCE])
            self.begins[i : i + len(begins)] = begins
            self.bounds[i + 1 : i + 1 + len(begins)] = lengths
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
        # Sentence numbers rise (or fall) by one within a row; those of what is missing stay where they are.
        turn = np.arange(int(total.sum())) - np.repeat(at, total)
        if backward:
            sentences = np.repeat(end, total) - turn
        else:
            sentences = np.repeat(begin, total) + turn
        beyond = missing.any() and turn >= np.repeat(counts, total)
        sentences[beyond] = 0
        boundaries = self.bounds[sentences]
        lows = np.maximum(boundaries, np.repeat(low, total))
        highs = np.minimum(self.bounds[sentences + 1] - 1, np.repeat(high, total))
        first = self.begins[sentences] + (highs if backward else lows) - boundaries
        lengths = highs - lows + 1
        # What is missing are boundaries, one at a time: the text begins with one.
        first[beyond], lengths[beyond] = 0, 1
        return Runs(first, lengths)
