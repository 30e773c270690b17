"""Streams: each row of a batch reads its own part of an epoch, step by step, in both directions."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast.corpus.encoding import Corpus, Places
from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.ops import gather_runs
from elmo_fast.ops._transfer import sent
from elmo_fast.text import Vocabulary

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


class StoredText:
    """The numbers of a corpus as tensors: shard by shard on the host, or entirely on a device."""

    def __init__(self, corpus: Corpus, whole_on: torch.device | None) -> None:
        self.device = whole_on or torch.device("cpu")
        self.shards: Sequence[Tensor] = [torch.from_numpy(shard.view(np.int32)) for shard in corpus.shards]
        if whole_on is not None:
            whole = torch.empty(int(corpus.offsets[-1]), dtype=torch.int32, device=whole_on)
            for part, shard in zip(whole.split([len(shard) for shard in self.shards]), self.shards, strict=True):
                part.copy_(shard)
            self.shards = [whole]

    def read(self, forward: Runs, backward: Runs, *, pinned: bool = False) -> Tensor:
        """The numbers of the forward runs, in order, then of the backward runs, [n] int32 on the text's device.

        pinned: into pinned memory, for copies to a GPU.
        """
        first, lengths = (torch.from_numpy(np.concatenate(pair)) for pair in zip(forward, backward, strict=True))
        numbers = torch.empty(int(lengths.sum()), dtype=torch.int32, device=self.device, pin_memory=pinned)
        return gather_runs(self.shards, first, lengths, len(forward.first), out=numbers)


class Reader:
    """Converts the numbers of windows to what the models of both directions read and predict.

    read_as, predicted_as: the types of a boundary, forward and backward: forward it is read as <S> and predicted as
    </S>, backward the reverse.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.size, self.unknown = len(vocabulary), vocabulary.unk
        self.read_as = vocabulary.bos, vocabulary.eos
        self.predicted_as = vocabulary.eos, vocabulary.bos

    def windows(self, numbers: Tensor, rows: int, steps: int) -> tuple[Tensor, Tensor]:
        """Types and targets of several steps, each [steps, 2, B, T] int64.

        numbers: for each direction and row the numbers of its places and of the next one, [2 · B · (steps · T + 1)].
        """
        types = numbers.sub_(1).view(2, rows, -1)
        # -1 if the number is a boundary, or a word outside the vocabulary: sums are faster than selections.
        boundary, outside = types >> 31, (self.size - 1 - types).bitwise_right_shift_(31)
        targets = torch.addcmul(types, outside, types - self.unknown)
        for way in (0, 1):
            types[way].sub_(boundary[way], alpha=self.read_as[way] + 1)
            targets[way].sub_(boundary[way], alpha=self.predicted_as[way] + 1)
        return _by_step(types[:, :, :-1], steps), _by_step(targets[:, :, 1:], steps)


def _by_step(values: Tensor, steps: int) -> Tensor:
    """[2, B, steps · T] int32 to [steps, 2, B, T] int64."""
    windows = values.unflatten(2, (steps, -1)).permute(2, 0, 1, 3)
    return windows.to(torch.int64, memory_format=torch.contiguous_format)


# Numbers gathered at a time, both directions together: enough for few calls, few enough for a core's cache.
SLAB = 1 << 18
Placement = Literal["auto", "device", "host"]


class StreamBatch(NamedTuple):
    """One step's windows, [direction, row, place]; direction 0 is forward, 1 backward, each in its reading order.

    types: what is read, [2, B, T] int64; a boundary is the type of <S> or </S>; targets: what is predicted, vocabulary
    ids, [2, B, T] int64, <UNK> for other words; filled: how many places of each row are text, the same in both
    directions, [B] int64 on the host (T except in an epoch's last step; the rest are boundaries); words: filled places
    of all R rows, including those of other processes.
    """

    types: Tensor
    targets: Tensor
    filled: npt.NDArray[np.int64]
    words: int


class Stream:
    """The batches of rows [first_row, first_row + row_count) of R: a function of corpus, seed, R, T, epoch and step.

    corpus: the text; rows: R, over all processes; unroll_steps: T; seed: of the sentence order, None keeps the order of
    the text; row_count: B, None for all rows from first_row on; device: the device of the batches; placement: where the
    text is stored: "device" (all of it), "host", or "auto", on a GPU if it takes less than half of its free memory.

    steps_per_epoch: steps that visit every position once; row_bounds: where each row begins and the last one ends,
    [R + 1] int64; waited: seconds that `batch` spent working or waiting.

    Raises ElmoFastError if the corpus has no words or an argument is out of range.
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
        device: torch.device | str = "cpu",
        placement: Placement = "auto",
    ) -> None:
        self.device = torch.device(device)
        row_count = rows - first_row if row_count is None else row_count
        _check(corpus, rows, unroll_steps, seed, first_row, row_count, placement)
        self.corpus, self.rows, self.unroll_steps, self.seed = corpus, rows, unroll_steps, seed
        self.placement = placement if placement != "auto" else _best_placement(corpus, self.device)
        short, longer = divmod(corpus.positions, rows)
        self.row_bounds = short * np.arange(rows + 1) + np.minimum(np.arange(rows + 1), longer)
        self.steps_per_epoch = -(-int(self.row_bounds[1]) // unroll_steps)
        mine = self.row_bounds[first_row : first_row + row_count + 1]
        self._low, self._high = mine[:-1], mine[1:]
        self._slab_steps = max(1, min(self.steps_per_epoch, SLAB // (2 * row_count * unroll_steps)))
        self._text = StoredText(corpus, self.device if self.placement == "device" else None)
        self._reader = Reader(corpus.vocabulary)
        self._epoch: tuple[int, Epoch] | None = None
        self._slab: tuple[tuple[int, int], list[tuple[Tensor, Tensor]]] | None = None
        # Only a GPU computes while the host reads; on a CPU a prefetch thread would compete with the model.
        ahead = self.device.type != "cpu" and self.placement == "host"
        self._thread = ThreadPoolExecutor(1, "elmo_fast-corpus") if ahead else None
        self._next: tuple[tuple[int, int], Future[Tensor]] | None = None
        self.waited = 0.0

    def batch(self, epoch: int, step: int) -> StreamBatch:
        """Step `step` of epoch `epoch`, both from 0; consecutive steps are cheap, other orders give the same batches.

        Raises ElmoFastError if a file of the corpus has changed since it was opened.
        """
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ElmoFastError(
                f"batch: epoch must be 0 or more and step 0 to {self.steps_per_epoch - 1}; got {epoch} and {step}"
            )
        slab, turn = divmod(step, self._slab_steps)
        if self._slab is None or self._slab[0] != (epoch, slab):
            began = time.perf_counter()
            self._slab = (epoch, slab), self._windows(epoch, slab)
            self.waited += time.perf_counter() - began
        types, targets = self._slab[1][turn]
        words = min(self.rows * self.unroll_steps, self.corpus.positions - self.rows * self.unroll_steps * step)
        return StreamBatch(types, targets, self._filled(step), words)

    def _filled(self, step: int) -> npt.NDArray[np.int64]:
        if step + 1 < self.steps_per_epoch:
            return np.full(len(self._low), self.unroll_steps)
        return np.clip(self._high - self._low - step * self.unroll_steps, 0, self.unroll_steps)

    def _windows(self, epoch: int, slab: int) -> list[tuple[Tensor, Tensor]]:
        """Types and targets of each step of one slab, [2, B, T]; prefetches the next slab."""
        numbers = self._numbers(epoch, slab)
        first, last = self._steps_of(slab)
        types, targets = self._reader.windows(numbers.to(self.device, non_blocking=True), len(self._low), last - first)
        if last == self.steps_per_epoch:
            # The place after a row's last is what the last place predicts.
            filled = sent(torch.from_numpy(self._filled(last - 1)), self.device)
            beyond = torch.arange(self.unroll_steps, device=self.device) >= filled[:, None]
            for way, marker in enumerate(self._reader.read_as):
                types[-1, way].masked_fill_(beyond, marker)
        return list(zip(types.unbind(), targets.unbind(), strict=True))

    def _steps_of(self, slab: int) -> tuple[int, int]:
        first = slab * self._slab_steps
        return first, min(first + self._slab_steps, self.steps_per_epoch)

    def _numbers(self, epoch: int, slab: int) -> Tensor:
        if self._thread is None:
            return self._read(epoch, slab)
        if self._next is not None and self._next[0] == (epoch, slab):
            numbers = self._next[1].result()
        else:
            numbers = self._thread.submit(self._read, epoch, slab).result()
        after = (epoch, slab + 1) if self._steps_of(slab)[1] < self.steps_per_epoch else (epoch + 1, 0)
        self._next = after, self._thread.submit(self._read, *after)
        return numbers

    def _order(self, epoch: int) -> Epoch:
        if self._epoch is None or self._epoch[0] != epoch:
            self.corpus.check_unchanged()
            self._epoch = None  # do not keep two orders in memory
            self._epoch = epoch, Epoch(self.corpus, self.seed, epoch)
        return self._epoch[1]

    def _read(self, epoch: int, slab: int) -> Tensor:
        if self.placement == "host":
            self.corpus.check_unchanged()
        order = self._order(epoch)
        first, last = (step * self.unroll_steps for step in self._steps_of(slab))
        width = last - first + 1
        forward = order.runs(
            np.minimum(self._low + first, self._high), np.minimum(self._low + last, self._high), width, backward=False
        )
        backward = order.runs(
            np.maximum(self._high - last, self._low), np.maximum(self._high - first, self._low), width, backward=True
        )
        return self._text.read(forward, backward, pinned=self.placement == "host" and self.device.type != "cpu")


def _best_placement(corpus: Corpus, device: torch.device) -> Placement:
    if device.type != "cuda":
        return "host"
    free, _ = torch.cuda.mem_get_info(device)
    return "device" if 4 * int(corpus.offsets[-1]) < free // 2 else "host"


def _check(
    corpus: Corpus, rows: int, unroll_steps: int, seed: int | None, first_row: int, row_count: int, placement: str
) -> None:
    if corpus.positions == 0:
        raise ElmoFastError("Stream: corpus must have at least one word; got none")
    for name, value, least in (("rows", rows, 1), ("unroll_steps", unroll_steps, 1), ("seed", seed or 0, 0)):
        if value < least:
            raise ElmoFastError(f"Stream: {name} must be {least} or more; got {value}")
    if first_row < 0 or row_count < 1 or first_row + row_count > rows:
        raise ElmoFastError(
            f"Stream: rows first_row .. first_row + row_count must be a nonempty range of the {rows} rows; "
            f"got {first_row} .. {first_row + row_count}"
        )
    check_choice("Stream: placement", placement, ("auto", "device", "host"))
