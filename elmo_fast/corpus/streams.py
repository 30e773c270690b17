"""Streams: each row of a batch reads its own part of an epoch, step by step, in both directions."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast.corpus.encoding import Corpus, Places
from elmo_fast.text import Vocabulary

_SENTENCES_AT_ONCE = 1 << 20


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

    def runs(self, low: Places, high: Places, width: int, *, backward: bool) -> tuple[Places, Places]:
        """Return the runs of the stored text that make up each row's v[low .. high], then boundaries up to `width`.

        low, high: [rows], low <= high; backward: v[high .. low] in place of v[low .. high]; such a run begins at its
        last number and is read toward smaller places. Returns where each run begins in the concatenated shards, and its
        number of values, both [runs] int64.
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
        return first, lengths


def windows(numbers: Tensor, vocabulary: Vocabulary, rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """Types and targets of several steps, each [steps, 2, B, T] int64, from numbers of the text.

    Forward a boundary is read as <S> and predicted as </S>, backward the reverse.

    numbers: for each direction and row the numbers of its places and of the next one, [2 · B · (steps · T + 1)].
    """
    types = numbers.sub_(1).view(2, rows, -1)
    # -1 if the number is a boundary, or a word outside the vocabulary: sums are faster than selections.
    boundary, outside = types >> 31, (len(vocabulary) - 1 - types).bitwise_right_shift_(31)
    targets = torch.addcmul(types, outside, types - vocabulary.unk)
    markers = vocabulary.bos, vocabulary.eos
    for way in (0, 1):
        types[way].sub_(boundary[way], alpha=markers[way] + 1)
        targets[way].sub_(boundary[way], alpha=markers[1 - way] + 1)

    def by_step(values: Tensor) -> Tensor:
        """[2, B, steps · T] int32 to [steps, 2, B, T] int64."""
        each = values.unflatten(2, (steps, -1)).permute(2, 0, 1, 3)
        return each.to(torch.int64, memory_format=torch.contiguous_format)

    return by_step(types[:, :, :-1]), by_step(targets[:, :, 1:])


# Numbers gathered at a time, both directions together: enough for few calls, few enough for a core's cache.
SLAB = 1 << 18
# Distinct words of a batch are padded to a multiple of this, so that few shapes of batches occur.
PADDED_TO = 256


class DistinctWords(NamedTuple):
    """The distinct words of a batch of N places, each of which is to be encoded once: words[inverse] are the places'.

    words: their types, the longest words first (kernels work on words of similar length together), then repeats of the
    last one up to a multiple of PADDED_TO, [U] int64; inverse: index of each place's word in `words`, [N] int64; ranks:
    `inverse` sorted, and places: the place of each before, both [N] int64.
    """

    words: Tensor
    inverse: Tensor
    ranks: Tensor
    places: Tensor

    @classmethod
    def of(cls, types: npt.NDArray[np.int64], lengths: npt.NDArray[np.integer]) -> "DistinctWords":
        """Return the distinct words of types, any shape; lengths: of every type, in bytes."""
        words, inverse = np.unique(types, return_inverse=True)
        order = np.argsort(-lengths[words], kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        words, inverse = words[order], rank[inverse.reshape(-1)]
        padded = np.pad(words, (0, -len(words) % PADDED_TO), mode="edge")
        places = np.argsort(inverse, kind="stable")
        return cls(*map(torch.from_numpy, (padded, inverse, inverse[places], places)))


class StreamBatch(NamedTuple):
    """One step's windows, [direction, row, place], on the host.

    Direction 0 is forward, 1 backward, each in its reading order.

    types: what is read, [2, B, T] int64; a boundary is the type of <S> or </S>; targets: what is predicted, vocabulary
    ids, [2, B, T] int64, <UNK> for other words; filled: how many places of each row are text, the same in both
    directions, [B] int64 (T except in an epoch's last step; the rest are boundaries); words: filled places of all R
    rows, including those of other processes; distinct: of each part of the rows, if asked for; samples: of the step, as
    the stream's `sample` returns them.
    """

    types: Tensor
    targets: Tensor
    filled: npt.NDArray[np.int64]
    words: int
    distinct: list[DistinctWords]
    samples: Any = None


class Stream:
    """The batches of rows [first_row, first_row + row_count) of R: a function of corpus, seed, R, T, epoch and step.

    corpus: the text; rows: R, over all processes; unroll_steps: T; seed: of the sentence order, None keeps the order of
    the text; row_count: B, None for all rows from first_row on; ahead: read ahead in a thread, for a model on a GPU,
    which computes meanwhile; on a CPU the thread would compete with it; distinct_parts: equal parts of the B rows whose
    distinct words each batch names, 0 for none; sample: returns what a step samples besides the text, given its number
    over all epochs; called with the reading, so ahead of the step too.

    steps_per_epoch: steps that visit every position once; row_bounds: where each row begins and the last one ends,
    [R + 1] int64; waited: seconds that `batch` spent working or waiting.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: int,
        unroll_steps: int,
        *,
        seed: int | None,
        first_row: int = 0,
        row_count: int | None = None,
        ahead: bool = False,
        distinct_parts: int = 0,
        sample: Callable[[int], Any] = lambda number: None,
    ) -> None:
        row_count = rows - first_row if row_count is None else row_count
        self.corpus, self.rows, self.unroll_steps, self.seed = corpus, rows, unroll_steps, seed
        short, longer = divmod(corpus.positions, rows)
        self.row_bounds = short * np.arange(rows + 1) + np.minimum(np.arange(rows + 1), longer)
        self.steps_per_epoch = -(-int(self.row_bounds[1]) // unroll_steps)
        own_bounds = self.row_bounds[first_row : first_row + row_count + 1]
        self._low, self._high = own_bounds[:-1], own_bounds[1:]
        self._slab_steps = max(1, min(self.steps_per_epoch, SLAB // (2 * row_count * unroll_steps)))
        self._shards = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
        self._parts, self._sample = distinct_parts, sample
        self._type_bytes = np.diff(corpus.types.ends.astype(np.int64), prepend=0).astype(np.int32)
        self._epoch: tuple[int, Epoch] | None = None
        self._slab: tuple[tuple[int, int], list[StreamBatch]] | None = None
        self._thread = ThreadPoolExecutor(1, "elmo_fast-corpus") if ahead else None
        self._next: tuple[tuple[int, int], Future[list[StreamBatch]]] | None = None
        self.waited = 0.0

    def batch(self, epoch: int, step: int) -> StreamBatch:
        """Return the batch of a step of an epoch, both from 0; in any order the same, consecutive ones are cheap."""
        slab, turn = divmod(step, self._slab_steps)
        if self._slab is None or self._slab[0] != (epoch, slab):
            began = time.perf_counter()
            self._slab = (epoch, slab), self._batches_of(epoch, slab)
            self.waited += time.perf_counter() - began
        return self._slab[1][turn]

    def _batches_of(self, epoch: int, slab: int) -> list[StreamBatch]:
        """Return the batches of one slab; prefetches the next slab."""
        if self._thread is None:
            return self._read(epoch, slab)
        if self._next is not None and self._next[0] == (epoch, slab):
            batches = self._next[1].result()
        else:
            batches = self._thread.submit(self._read, epoch, slab).result()
        after = (epoch, slab + 1) if (slab + 1) * self._slab_steps < self.steps_per_epoch else (epoch + 1, 0)
        self._next = after, self._thread.submit(self._read, *after)
        return batches

    def _read(self, epoch: int, slab: int) -> list[StreamBatch]:
        self.corpus.check_unchanged()
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = None  # do not keep two orders in memory
            self._epoch = epoch, Epoch(self.corpus, self.seed, epoch)
        order, begin = self._epoch[1], slab * self._slab_steps
        steps = range(begin, min(begin + self._slab_steps, self.steps_per_epoch))
        first, last = begin * self.unroll_steps, steps.stop * self.unroll_steps
        width = last - first + 1
        forward = order.runs(
            np.minimum(self._low + first, self._high), np.minimum(self._low + last, self._high), width, backward=False
        )
        backward = order.runs(
            np.maximum(self._high - last, self._low), np.maximum(self._high - first, self._low), width, backward=True
        )
        places, lengths = (torch.from_numpy(np.concatenate(pair)) for pair in zip(forward, backward, strict=True))
        numbers = gather_runs(self._shards, places, lengths, len(forward[0]))
        types, targets = windows(numbers, self.corpus.vocabulary, len(self._low), len(steps))
        filled = [np.clip(self._high - self._low - step * self.unroll_steps, 0, self.unroll_steps) for step in steps]
        if steps.stop == self.steps_per_epoch:
            # The place after a row's last is what the last place predicts.
            beyond = torch.arange(self.unroll_steps, device="cpu") >= torch.from_numpy(filled[-1])[:, None]
            for way, marker in enumerate((self.corpus.vocabulary.bos, self.corpus.vocabulary.eos)):
                types[-1, way].masked_fill_(beyond, marker)
        batches, most = [], self.rows * self.unroll_steps
        for step, read, predicted, places_filled in zip(steps, types, targets, filled, strict=True):
            parts = read.chunk(self._parts, dim=1) if self._parts else ()
            distinct = [DistinctWords.of(each.numpy(), self._type_bytes) for each in parts]
            words = min(most, self.corpus.positions - most * step)
            samples = self._sample(epoch * self.steps_per_epoch + step)
            batches.append(StreamBatch(read, predicted, places_filled, words, distinct, samples))
        return batches


def gather_runs(shards: list[Tensor], first: Tensor, lengths: Tensor, upward: int) -> Tensor:
    """Concatenate runs of the stored text, [sum(lengths)]; the first `upward` are read upward, the others downward.

        out[at_r + i] = v[first_r + i] for r < upward, else v[first_r - i];    at_r = lengths_0 + ... + lengths_(r-1)

    shards: v as consecutive parts, none of which a run leaves.
    """
    # An index is its run's shift plus the number's own index in out, or minus it for downward runs.
    at, turn = lengths.cumsum(0) - lengths, int(lengths[:upward].sum())
    indices = torch.cat([first[:upward] - at[:upward], first[upward:] + at[upward:]]).repeat_interleave(lengths)
    numbers = torch.arange(len(indices), device="cpu")
    indices[:turn] += numbers[:turn]
    indices[turn:] -= numbers[turn:]
    if len(shards) == 1:
        return shards[0].index_select(0, indices)
    out, begin = shards[0].new_empty(len(indices)), 0
    for shard in shards:
        here = (indices >= begin) & (indices < begin + len(shard))
        out[here] = shard[indices[here] - begin]
        begin += len(shard)
    return out
