"""C++ on the CPU: text counted stretch by stretch; runs of rare pairs kept in memory or in files; one merge."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._native import describe, has
from elmo_fast.static.cooccurrences._units import scale_of, weights_of

LONGEST_STRETCH = 1 << 22  # numbers counted by one call, after which a Ctrl-C is heard
_BYTES = 8  # of a cell, of a record, and of a key or sum of a run


def run(
    numbers: Sequence[Tensor],
    words: Tensor,
    num_words: int,
    window: int,
    symmetric: bool,
    distance_weighting: bool,
    memory: int,
    folder: str | os.PathLike[str] | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A quarter of the memory is for the table of frequent pairs, a quarter for runs, half for sorting records."""
    total, done = sum(map(len, numbers)), 0
    weights = torch.tensor(weights_of(window, distance_weighting), dtype=torch.int64, device="cpu")
    threads = torch.get_num_threads()
    product = corner_product(num_words, symmetric, min(memory // 4 // _BYTES // threads, total // 4))
    cells = torch.ops.elmo_fast.cooccurrence_corner_cells(num_words, product, symmetric)
    corner = torch.zeros(threads, cells, dtype=torch.int64, device="cpu")
    stretch = min(LONGEST_STRETCH, max(1, memory // 2 // (4 * _BYTES * window)))
    with tempfile.TemporaryDirectory(prefix="elmo-fast-", dir=folder) as work:
        runs = Runs(memory // 4, work)
        for part in numbers:
            for begin, end in _stretches(len(part), stretch):
                found = torch.ops.elmo_fast.count_cooccurrences(
                    part, begin, end, words, weights, num_words, product, symmetric, corner
                )
                runs.add(*found)
                done += end - begin
                if progress is not None:
                    progress(done, total)
        return runs.merged(corner, num_words, product, symmetric, scale_of(window, distance_weighting))


def _stretches(count: int, size: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, count, size):
        yield begin, min(begin + size, count)


def corner_product(num_words: int, symmetric: bool, most_cells: int) -> int:
    """The largest product for which the cells (row + 1)(column + 1) <= product are no more than that."""
    low, high = 0, min(num_words**2, 4 * most_cells + 4)  # a table has a quarter of its product at least
    while low < high:
        middle = (low + high + 1) // 2
        if torch.ops.elmo_fast.cooccurrence_corner_cells(num_words, middle, symmetric) <= most_cells:
            low = middle
        else:
            high = middle - 1
    return low


class Runs:
    """Sorted keys with their sums: in memory up to a bound, then in files of a folder, which are mapped."""

    def __init__(self, most_bytes: int, folder: str) -> None:
        self._left, self._folder = most_bytes, folder
        self.keys: list[Tensor] = []
        self.sums: list[Tensor] = []

    def add(self, keys: Sequence[Tensor], sums: Sequence[Tensor]) -> None:
        """Takes in the runs of one stretch."""
        for tensors in zip(keys, sums, strict=True):
            size = 2 * _BYTES * len(tensors[0])
            if size == 0:
                continue
            if size <= self._left:
                self._left -= size
            else:
                tensors = self._kept_in_file(tensors[0]), self._kept_in_file(tensors[1])
            self.keys.append(tensors[0])
            self.sums.append(tensors[1])

    def _kept_in_file(self, tensor: Tensor) -> Tensor:
        handle, path = tempfile.mkstemp(dir=self._folder)
        with contextlib.closing(os.fdopen(handle, "wb")) as file:
            tensor.numpy().tofile(file)
        return torch.from_file(path, size=len(tensor), dtype=torch.int64)

    def merged(
        self, corner: Tensor, num_words: int, product: int, symmetric: bool, scale: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The entries of all runs and of the table."""
        counted = self.keys, self.sums, corner
        sizes = torch.ops.elmo_fast.cooccurrence_row_sizes(*counted, num_words, product, symmetric)
        total = int(sizes.sum())
        rows, columns = (torch.empty(total, dtype=torch.int32, device="cpu") for _ in "ij")
        values = torch.empty(total, dtype=torch.float32, device="cpu")
        torch.ops.elmo_fast.merge_cooccurrences(*counted, sizes, product, symmetric, scale, rows, columns, values)
        return rows, columns, values


def _fake_count(a: Any) -> tuple[list[Tensor], list[Tensor]]:
    """As many runs as threads, of unknown sizes."""

    def runs() -> list[Tensor]:
        return [a.corner.new_empty(torch.library.get_ctx().new_dynamic_size()) for _ in range(a.corner.shape[0])]

    return runs(), runs()


has("cooccurrence_corner_cells")  # a number, of numbers: it needs no fake
describe("count_cooccurrences", _fake_count)
describe("cooccurrence_row_sizes", lambda a: a.corner.new_empty(2, a.num_words))
describe("merge_cooccurrences", lambda a: None)
