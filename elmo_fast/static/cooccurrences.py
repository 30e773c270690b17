"""The sparse matrix of how often words occur near each other: counted in C++ if that is built, else in plain torch."""

import math
import os
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast._runtime.progress import Progress
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native
from elmo_fast.ops._checks import check_dtype, check_shapes, check_words, described

# In `words`: a number between sentences, and one that is left out as if it did not occur.
BOUNDARY, LEFT_OUT = -1, -2
LONGEST_CHUNK = 1 << 22  # numbers counted by one call; Ctrl-C is noticed between calls
_BYTES = 8  # of a cell, of a record, and of a key or sum of a run
_BOUNDS = {"num_words": (1, 2**27 - 1), "window": (1, 255), "memory": (1 << 20, 1 << 62)}
_Numbers = npt.NDArray[np.int64]


class Cooccurrences(NamedTuple):
    """The Z entries that are not zero, by row, then column."""

    rows: Tensor
    """i, [Z] int32"""
    columns: Tensor
    """j, [Z] int32"""
    values: Tensor
    """X_ij, [Z] float32"""


def cooccurrences(
    numbers: Sequence[Tensor],
    words: Tensor,
    num_words: int,
    *,
    window: int = 10,
    symmetric: bool = True,
    memory: int = 1 << 30,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Cooccurrences:
    """Count how often word j occurs near word i within sentences; nearer words count more.

        X_ij = sum over pairs of i and a j before it, at most `window` words away, of 1 / distance
        X_ij + X_ji instead if `symmetric`: j before or after

    Distances do not count words that are left out. Weights are added as integer multiples of 1 / lcm(1..window), so
    sums are exact and do not depend on threads or memory; for windows above 20, as multiples of 2^-28, to which 1 /
    distance is rounded. Torch's threads count pairs of frequent words (those with the first numbers) in a table, others
    in runs that are sorted and merged; runs that exceed `memory` are written to temporary files. The result (12 bytes
    per entry) and 32 bytes per word are not included in `memory`.

    Args:
        numbers: the text in parts, each [n] int32, on the host; a part starts a sentence
        words: the word 0..V-1 of each number, or BOUNDARY (-1, between sentences) or LEFT_OUT (-2), [numbers] int32
        num_words: V, below 2^27
        window: words on each side, 1 to 255
        symmetric: count both sides; False: only the words before
        memory: bytes for counting, at least 2^20
        folder: for temporary files; None: the system's
        progress: called with how many numbers are counted, and the total

    Raises:
        ElmoFastError: wrong shape, dtype or device, a number without a word, a setting out of range.
        OSError: a temporary file cannot be written.

    Source: Pennington et al. 2014, section 4.2.
    """
    for name, value in {"num_words": num_words, "window": window, "memory": memory}.items():
        low, high = _BOUNDS[name]
        if not low <= value <= high:
            raise ElmoFastError(f"cooccurrences: {name} must be from {low} to {high}; got {value}")
    _check({f"numbers[{i}]": part for i, part in enumerate(numbers)}, words, num_words)
    # The integer that stands for a weight of 1: the lcm of all distances (exact up to a window of 20), or 2^28.
    scale = min(math.lcm(*range(1, window + 1)), 2**28)
    weights = [round(scale / distance) for distance in range(1, window + 1)]
    total = sum(map(len, numbers))
    if total >= (most := 2**63 // (2 * sum(weights))):
        what = f"sums of {most:,} numbers and more might not fit 64 bits at window={window}"
        raise ElmoFastError(f"cooccurrences: {what}; got {total:,}")
    threads, done = torch.get_num_threads(), 0
    if _native.C is None:
        return in_torch(numbers, words, num_words, weights, scale, symmetric)
    # A quarter of the memory is for the table of frequent pairs, not much more than it takes to count a short text, a
    # quarter for runs, half for sorting records.
    cells, left = min(memory // 4 // _BYTES // threads, total // 4), memory // 4
    counter = _native.C.CooccurrenceCounter(
        words.contiguous().numpy(), np.array(weights, np.int64), num_words, symmetric, cells, threads
    )
    chunk = min(LONGEST_CHUNK, max(1, memory // 2 // (4 * _BYTES * window)))
    runs: list[tuple[_Numbers, _Numbers]] = []  # sorted keys with their sums
    for part in numbers:
        text = part.contiguous().numpy()
        for begin in range(0, len(text), chunk):
            end = min(begin + chunk, len(text))
            for keys, sums in counter.count(text, begin, end):
                if (size := 2 * _BYTES * len(keys)) > left:
                    runs.append((_in_file(keys, folder), _in_file(sums, folder)))
                elif size:
                    runs.append((keys, sums))
                    left -= size
            done += end - begin
            if progress is not None:
                progress(done, total)
    return Cooccurrences(*map(torch.from_numpy, counter.merge(runs, scale)))


def _in_file(numbers: _Numbers, folder: str | os.PathLike[str] | None) -> _Numbers:
    """Return the numbers memory-mapped, from a new file of the folder, which is gone when they are."""
    with tempfile.TemporaryFile(dir=folder) as file:
        numbers.tofile(file)
        return np.memmap(file, np.int64, "r")


def _check(parts: dict[str, Tensor], words: Tensor, num_words: int) -> None:
    """Raise ElmoFastError unless all tensors are int32 on the host, and each number has a word."""
    op = "cooccurrences"
    for name, tensor in {**parts, "words": words}.items():
        check_shapes(op, (name, tensor, "n"))
        check_dtype(op, name, tensor, torch.int32)
        if tensor.device.type != "cpu":
            raise ElmoFastError(f"{op}: {name} must be on the host; got {described(tensor)}")
    if len(words) and not LEFT_OUT <= int(words.min()) <= int(words.max()) < num_words:
        got = f"values from {int(words.min())} to {int(words.max())}"
        raise ElmoFastError(f"{op}: words must be 0 to V - 1 = {num_words - 1}, {BOUNDARY} or {LEFT_OUT}; got {got}")
    check_words(op, len(words), **parts)


def in_torch(
    numbers: Sequence[Tensor], words: Tensor, num_words: int, weights: Sequence[int], scale: int, symmetric: bool
) -> Cooccurrences:
    """Define the matrix: for each distance all pairs of that distance, all in memory.

    weights: integers, of each distance from 1; scale: the integer that stands for a weight of 1
    """
    keys = [torch.empty(0, dtype=torch.int64, device="cpu")]
    counts = [torch.empty(0, dtype=torch.int64, device="cpu")]
    for part in numbers:
        text = words[part.long()].long()
        text = text[text != LEFT_OUT]
        sentences = (text == BOUNDARY).cumsum(0)
        text, sentences = text[text >= 0], sentences[text >= 0]
        for distance, weight in enumerate(weights[: max(len(text) - 1, 0)], 1):
            near = sentences[distance:] == sentences[:-distance]
            here, before = text[distance:][near], text[:-distance][near]
            for row, column in ((here, before), (before, here)) if symmetric else ((here, before),):
                keys.append(row * num_words + column)
                counts.append(torch.full_like(row, weight))
    entries, places = torch.cat(keys).unique(return_inverse=True)
    sums = torch.zeros(len(entries), dtype=torch.int64, device="cpu").index_add_(0, places, torch.cat(counts))
    return Cooccurrences((entries // num_words).int(), (entries % num_words).int(), (sums.double() / scale).float())
