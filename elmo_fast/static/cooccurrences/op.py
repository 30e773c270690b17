"""cooccurrences: the sparse matrix of how often words occur near each other."""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_same, check_shape, check_words, given
from elmo_fast.ops._dispatch import select
from elmo_fast.progress import Progress

# In `words`: a number between sentences, and one that is left out as if it did not occur.
BOUNDARY, LEFT_OUT = -1, -2
LARGEST_WINDOW = 255


class Cooccurrences(NamedTuple):
    """The Z entries that are not zero, by row, then column."""

    rows: Tensor
    """i, [Z] int32"""
    columns: Tensor
    """j, [Z] int32"""
    values: Tensor
    """X_ij, [Z] float32"""


class CooccurrenceArguments(NamedTuple):
    """What a backend is given: the arguments of `cooccurrences`, checked."""

    numbers: list[Tensor]
    words: Tensor
    num_words: int
    window: int
    symmetric: bool
    distance_weighting: bool
    memory: int
    folder: str | os.PathLike[str] | None
    progress: Progress | None

    def scale(self) -> int:
        """The integer that stands for a weight of 1: the lcm of all distances (exact up to a window of 20), or 2^28."""
        return min(math.lcm(*range(1, self.window + 1)), 2**28) if self.distance_weighting else 1

    def weights(self) -> list[int]:
        """The weight of each distance from 1, times scale(), rounded to integers: sums depend on no order."""
        if not self.distance_weighting:
            return [1] * self.window
        return [round(self.scale() / distance) for distance in range(1, self.window + 1)]


def cooccurrences(
    numbers: Sequence[Tensor],
    words: Tensor,
    num_words: int,
    *,
    window: int = 10,
    symmetric: bool = True,
    distance_weighting: bool = True,
    memory: int = 1 << 30,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    backend: str = "auto",
) -> Cooccurrences:
    """How often word j occurs near word i within sentences; nearer words count more.

        X_ij = sum over pairs of i and a j before it, at most `window` words away, of 1 / distance
        X_ij + X_ji instead if `symmetric`: j before or after

    Distances do not count words that are left out. Weights are added as integer multiples of 1 / lcm(1..window), so
    sums are exact and do not depend on threads or memory; for windows above 20, as multiples of 2^-28, to which 1 /
    distance is rounded. "native" counts with torch's threads: pairs of frequent words (those with the first numbers) in
    a table, others in runs that are sorted and merged; runs that exceed `memory` are written to temporary files. The
    result (12 bytes per entry) and 32 bytes per word are not included in `memory`.

    Args:
        numbers: the text in parts, each [n] int32, on the host; a part starts a sentence
        words: the word 0..V-1 of each number, or BOUNDARY (-1, between sentences) or LEFT_OUT (-2), [numbers] int32
        num_words: V, below 2^27
        window: words on each side, 1 to 255
        symmetric: count both sides; False: only the words before
        distance_weighting: count 1 / distance; False: 1 for every pair
        memory: bytes for counting, at least 2^20
        folder: for temporary files; None: the system's
        progress: called with how many numbers are counted, and the total
        backend: "auto", "native" or "reference"

    Returns:
        Cooccurrences

    Raises:
        ElmoFastError: wrong shape, dtype or device, a number without a word, a setting out of range.
        OSError: a temporary file cannot be written.

    Source: Pennington et al. 2014, section 4.2.
    """
    a = CooccurrenceArguments(
        list(numbers), words, num_words, window, symmetric, distance_weighting, memory, folder, progress
    )
    _check(a)
    parts = [part.contiguous() for part in numbers]
    kernel = select("cooccurrences", backend, words.device, torch.float32)
    return Cooccurrences(*kernel.run(a._replace(numbers=parts, words=words.contiguous())))


def _check(a: CooccurrenceArguments) -> None:
    op = "cooccurrences"
    parts = {f"numbers[{i}]": part for i, part in enumerate(a.numbers)}
    check_shape(op, "words", a.words, "numbers")
    for name, part in parts.items():
        check_shape(op, name, part, "n")
    for name, tensor in {**parts, "words": a.words}.items():
        check_dtype(op, name, tensor, torch.int32)
        if tensor.device.type != "cpu":
            raise ElmoFastError(f"{op}: {name} must be on the host; got {given(tensor)}")
    check_same(op, "numbers and words", [a.words, *a.numbers])
    bounds = {"num_words": (1, 2**27 - 1), "window": (1, LARGEST_WINDOW), "memory": (1 << 20, 1 << 62)}
    for name, (low, high) in bounds.items():
        if not low <= getattr(a, name) <= high:
            raise ElmoFastError(f"{op}: {name} must be from {low} to {high}; got {getattr(a, name)}")
    if len(a.words) and not LEFT_OUT <= int(a.words.min()) <= int(a.words.max()) < a.num_words:
        raise ElmoFastError(
            f"{op}: words must be from 0 to V - 1 = {a.num_words - 1}, or {BOUNDARY} or {LEFT_OUT}; "
            f"got values from {int(a.words.min())} to {int(a.words.max())}"
        )
    check_words(op, len(a.words), **parts)
    if (total := sum(map(len, a.numbers))) >= (most := 2**63 // (2 * sum(a.weights()))):
        raise ElmoFastError(
            f"{op}: sums of {most:,} numbers and more might not fit 64 bits at window={a.window}; got {total:,}"
        )
