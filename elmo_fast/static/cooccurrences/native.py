"""C++ on the CPU: counts the text stretch by stretch; runs of rare pairs are kept in memory or files, then merged."""

import os
import tempfile
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.static.cooccurrences.op import CooccurrenceArguments

LONGEST_STRETCH = 1 << 22  # numbers counted by one call; Ctrl-C is noticed between calls
_BYTES = 8  # of a cell, of a record, and of a key or sum of a run
_Numbers = npt.NDArray[np.int64]


def run(a: CooccurrenceArguments) -> tuple[Tensor, Tensor, Tensor]:
    """A quarter of the memory is for the table of frequent pairs, a quarter for runs, half for sorting records."""
    assert _native.C is not None
    total, done, threads = sum(map(len, a.numbers)), 0, torch.get_num_threads()
    counter = _native.C.CooccurrenceCounter(
        a.words.numpy(), np.array(a.weights(), np.int64), a.num_words, a.symmetric, most_cells(a, threads), threads
    )
    stretch = min(LONGEST_STRETCH, max(1, a.memory // 2 // (4 * _BYTES * a.window)))
    with tempfile.TemporaryDirectory(prefix="elmo-fast-", dir=a.folder) as work:
        runs = Runs(a.memory // 4, work)
        for part in a.numbers:
            for begin in range(0, len(part), stretch):
                end = min(begin + stretch, len(part))
                runs.add(counter.count(part.numpy(), begin, end))
                done += end - begin
                if a.progress is not None:
                    a.progress(done, total)
        rows, columns, values = map(torch.from_numpy, counter.merge(runs.kept, a.scale()))
        return rows, columns, values


def most_cells(a: CooccurrenceArguments, threads: int) -> int:
    """The size of each thread's table of frequent pairs: not much more than it takes to count a short text."""
    return min(a.memory // 4 // _BYTES // threads, sum(map(len, a.numbers)) // 4)


class Runs:
    """Sorted keys with their sums: in memory up to a bound, then in memory-mapped files of a folder."""

    def __init__(self, most_bytes: int, folder: str) -> None:
        self._left, self._folder = most_bytes, folder
        self.kept: list[tuple[_Numbers, _Numbers]] = []

    def add(self, runs: Iterable[tuple[_Numbers, _Numbers]]) -> None:
        """Adds the runs of one stretch."""
        for keys, sums in runs:
            size = 2 * _BYTES * len(keys)
            if size == 0:
                continue
            fits = size <= self._left
            self._left -= size if fits else 0
            self.kept.append((keys, sums) if fits else (self._in_file(keys), self._in_file(sums)))

    def _in_file(self, numbers: _Numbers) -> _Numbers:
        handle, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(handle, "wb") as file:
            numbers.tofile(file)
        return np.memmap(path, np.int64, "r")
