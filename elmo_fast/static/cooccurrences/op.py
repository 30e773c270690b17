"""cooccurrences: the sparse matrix of how often words stand near each other."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_same, check_shape, check_words, given
from elmo_fast.ops._dispatch import select
from elmo_fast.static.cooccurrences._units import LARGEST_WINDOW, most_words

# What `words` holds for a number that ends a sentence, and for one that is passed over as if it were not there.
BOUNDARY, LEFT_OUT = -1, -2
# Called with the numbers that are counted, and those in all.
Progress = Callable[[int, int], None]


class Cooccurrences(NamedTuple):
    """The Z entries that are not zero, by row, then column."""

    rows: Tensor
    """the word near which was counted, [Z] int32"""
    columns: Tensor
    """the word that was counted, [Z] int32"""
    values: Tensor
    """how often, nearer counting more, [Z] float32"""


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
    """How often word j stands near word i, nearer counting more, within sentences.

        X_ij = sum over pairs of i and a j before it, at most `window` words away, of 1 / distance
        X_ij + X_ji in its place where `symmetric`: j before or after

    Distances are those between words that are not left out. Weights are added as whole multiples of 1 / lcm(1..window),
    so that sums are exact and do not depend on threads or memory; beyond a window of 20, of 2^-28, to which 1 /
    distance is rounded. "native" counts with torch's threads: pairs of frequent words, numbered first, in a table, and
    others in runs that are sorted and merged; what exceeds `memory` of them is written to temporary files. The result,
    12 bytes an entry, and 32 bytes a word are beyond that bound.

    Args:
        numbers: the text in parts, each [n] int32, on the host; a part begins a sentence
        words: the word 0..V-1 of each number, or BOUNDARY (-1, between sentences) or LEFT_OUT (-2), [numbers] int32
        num_words: V, below 2^27
        window: words on each side, 1 to 255
        symmetric: count both sides, else the words before alone
        distance_weighting: 1 / distance, else 1 for every pair
        memory: bytes for counting, at least 2^20
        folder: where temporary files are made; None: the system's
        progress: called with the numbers that are counted and those in all
        backend: "auto", "native" or "reference"

    Returns:
        Cooccurrences

    Raises:
        ElmoFastError: wrong shape, dtype or device, a number without a word, a setting out of its range.
        OSError: a temporary file cannot be written.

    Source: Pennington et al. 2014, section 4.2.
    """
    op = "cooccurrences"
    check_shape(op, "words", words, "numbers")
    for i, part in enumerate(numbers):
        check_shape(op, f"numbers[{i}]", part, "n")
    for name, tensor in (*((f"numbers[{i}]", part) for i, part in enumerate(numbers)), ("words", words)):
        check_dtype(op, name, tensor, torch.int32)
        if tensor.device.type != "cpu":
            raise ElmoFastError(f"{op}: {name} must be on the host; got {given(tensor)}")
    check_same(op, "numbers and words", [words, *numbers])
    _check_settings(op, num_words, window, memory)
    if len(words) and not LEFT_OUT <= int(words.min()) <= int(words.max()) < num_words:
        raise ElmoFastError(
            f"{op}: words must be from 0 to V - 1 = {num_words - 1}, or {BOUNDARY} or {LEFT_OUT}; "
            f"got values from {int(words.min())} to {int(words.max())}"
        )
    for i, part in enumerate(numbers):
        check_words(op, len(words), **{f"numbers[{i}]": part})
    total = sum(map(len, numbers))
    if total >= (most := most_words(window, distance_weighting)):
        raise ElmoFastError(
            f"{op}: sums of {most:,} numbers and more might not fit 64 bits at window={window}; got {total:,}"
        )
    kernel = select(op, backend, words.device, torch.float32)
    parts = [part.contiguous() for part in numbers]
    found = kernel.run(
        parts, words.contiguous(), num_words, window, symmetric, distance_weighting, memory, folder, progress
    )
    return Cooccurrences(*found)


def _check_settings(op: str, num_words: int, window: int, memory: int) -> None:
    for name, value, low, high in (
        ("num_words", num_words, 1, 2**27 - 1),
        ("window", window, 1, LARGEST_WINDOW),
        ("memory", memory, 1 << 20, 1 << 62),
    ):
        if not low <= value <= high:
            raise ElmoFastError(f"{op}: {name} must be from {low} to {high}; got {value}")
