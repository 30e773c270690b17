"""C++ on the CPU: counts the text stretch by stretch; runs of rare pairs are kept in memory or files, then merged."""

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._native import describe, has
from elmo_fast.static.cooccurrences.op import CooccurrenceArguments

LONGEST_STRETCH = 1 << 22  # numbers counted by one call; Ctrl-C is noticed between calls
_BYTES = 8  # of a cell, of a record, and of a key or sum of a run


def run(a: CooccurrenceArguments) -> tuple[Tensor, Tensor, Tensor]:
    """A quarter of the memory is for the table of frequent pairs, a quarter for runs, half for sorting records."""
    total, done = sum(map(len, a.numbers)), 0
    weights = torch.tensor(a.weights(), dtype=torch.int64, device="cpu")
    threads = torch.get_num_threads()
    product = corner_product(a.num_words, a.symmetric, min(a.memory // 4 // _BYTES // threads, total // 4))
    cells = torch.ops.elmo_fast.cooccurrence_corner_cells(a.num_words, product, a.symmetric)
    corner = torch.zeros(threads, cells, dtype=torch.int64, device="cpu")
    stretch = min(LONGEST_STRETCH, max(1, a.memory // 2 // (4 * _BYTES * a.window)))
    with tempfile.TemporaryDirectory(prefix="elmo-fast-", dir=a.folder) as work:
        runs = Runs(a.memory // 4, work)
        for part in a.numbers:
            for begin in range(0, len(part), stretch):
                end = min(begin + stretch, len(part))
                found = torch.ops.elmo_fast.count_cooccurrences(
                    part, begin, end, a.words, weights, a.num_words, product, a.symmetric, corner
                )
                runs.add(*found)
                done += end - begin
                if a.progress is not None:
                    a.progress(done, total)
        counted = runs.keys, runs.sums, corner
        sizes = torch.ops.elmo_fast.cooccurrence_row_sizes(*counted, a.num_words, product, a.symmetric)
        rows, columns = (torch.empty(int(sizes.sum()), dtype=torch.int32, device="cpu") for _ in "ij")
        values = torch.empty(len(rows), dtype=torch.float32, device="cpu")
        torch.ops.elmo_fast.merge_cooccurrences(*counted, sizes, product, a.symmetric, a.scale(), rows, columns, values)
        return rows, columns, values


def corner_product(num_words: int, symmetric: bool, most_cells: int) -> int:
    """The largest product for which at most that many cells have (row + 1)(column + 1) <= product."""
    low, high = 0, min(num_words**2, 4 * most_cells + 4)  # a table has a quarter of its product at least
    while low < high:
        middle = (low + high + 1) // 2
        if torch.ops.elmo_fast.cooccurrence_corner_cells(num_words, middle, symmetric) <= most_cells:
            low = middle
        else:
            high = middle - 1
    return low


class Runs:
    """Sorted keys with their sums: in memory up to a bound, then in memory-mapped files of a folder."""

    def __init__(self, most_bytes: int, folder: str) -> None:
        self._left, self._folder = most_bytes, folder
        self.keys: list[Tensor] = []
        self.sums: list[Tensor] = []

    def add(self, keys: Sequence[Tensor], sums: Sequence[Tensor]) -> None:
        """Adds the runs of one stretch."""
        for run_keys, run_sums in zip(keys, sums, strict=True):
            size = 2 * _BYTES * len(run_keys)
            if size == 0:
                continue
            fits = size <= self._left
            self._left -= size if fits else 0
            self.keys.append(run_keys if fits else self._in_file(run_keys))
            self.sums.append(run_sums if fits else self._in_file(run_sums))

    def _in_file(self, tensor: Tensor) -> Tensor:
        handle, path = tempfile.mkstemp(dir=self._folder)
        with os.fdopen(handle, "wb") as file:
            tensor.numpy().tofile(file)
        return torch.from_file(path, size=len(tensor), dtype=torch.int64)


def _fake_count(a: Any) -> tuple[list[Tensor], list[Tensor]]:
    """As many runs as threads, of unknown sizes."""

    def runs() -> list[Tensor]:
        return [a.corner.new_empty(torch.library.get_ctx().new_dynamic_size()) for _ in range(a.corner.shape[0])]

    return runs(), runs()


has("cooccurrence_corner_cells")  # a number, of numbers: it needs no fake
describe("count_cooccurrences", _fake_count)
describe("cooccurrence_row_sizes", lambda a: a.corner.new_empty(2, a.num_words))
describe("merge_cooccurrences", lambda a: None)
