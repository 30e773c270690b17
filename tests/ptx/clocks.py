"""The order among warps whose blocks wait for each other: vector clocks over barriers and atomics.

Warp a knows of warp b's accesses up to the time clocks[a, b]. A barrier joins what the warps of a block know; an atomic
that releases leaves at its address what its warp knows, and one that acquires takes it from there. Scope .cta reaches
the own block alone. A relaxed one orders nothing.
"""

import numpy as np

from tests.ptx.program import PtxError
from tests.ptx.races import NOBODY, Intervals, Shadow

MOST = 1 << 30  # bytes for the times of reads of one region: elmo-fast check's largest LSTM takes 826 MB
RELEASES, ACQUIRES = ("release", "acq_rel"), ("acquire", "acq_rel")


class Clocks(Intervals):
    def __init__(self, blocks: int, warps: int):
        super().__init__(blocks, warps)
        numbers = blocks * (warps + 1)
        self.clocks = np.zeros((numbers, numbers), np.int32)
        np.fill_diagonal(self.clocks, 1)
        self.left: dict[tuple[int, int], np.ndarray] = {}
        """(address, block, or -1 for all) -> what was released there"""

    def barrier(self, blocks: np.ndarray) -> None:
        for block in blocks:
            first = block * (self.warps + 1)
            rows = slice(first, first + self.warps)
            self.clocks[rows] = self.clocks[rows].max(0)
            each = np.arange(first, first + self.warps)
            self.clocks[each, each] += 1

    def times(self, by: np.ndarray) -> np.ndarray:
        return self.clocks[by, by]

    def unordered(self, by: np.ndarray, other: np.ndarray, when: np.ndarray) -> np.ndarray:
        return (other != NOBODY) & (self.clocks[by, other] < when)

    def synchronise(self, by: int, address: int, modifiers: tuple[str, ...]) -> None:
        """An atomic of the warp `by`."""
        block = by // (self.warps + 1)
        own, everyone = (address, block), (address, -1)
        wide = "cta" not in modifiers
        if any(m in ACQUIRES for m in modifiers):
            for key in (own, everyone) if wide else (own,):
                if key in self.left:
                    self.clocks[by] = np.maximum(self.clocks[by], self.left[key])
        if any(m in RELEASES for m in modifiers):
            for key in (own, everyone) if wide else (own,):
                self.left[key] = np.maximum(self.left.get(key, 0), self.clocks[by])
            self.clocks[by, by] += 1

    def shadow(self, places: int) -> Shadow:
        return ClockShadow(places, self)


class ClockShadow(Shadow):
    """As `Shadow`, with the time of every warp's last read of a place: a later write must know of all of them."""

    order: Clocks

    def __init__(self, places: int, order: Clocks):
        super().__init__(places, order)
        self.read_times: np.ndarray | None = None
        self.atomic_times: np.ndarray | None = None
        """as `times_of_reads`, of atomics, where there are any"""
        self.reads: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        """places, warps, times: kept like that while nobody writes, as most tensors are never written"""

    def no_times(self) -> np.ndarray:
        shape = len(self.writer), len(self.order.clocks)
        if shape[0] * shape[1] * 4 > MOST:
            raise PtxError(f"{shape[0]} places times {shape[1]} warps are too many to watch: take a smaller case")
        return np.zeros(shape, np.int32)

    def times_of_reads(self) -> np.ndarray:
        """[places, warps]"""
        if self.read_times is None:
            self.read_times = self.no_times()
            for places, by, times in self.reads:
                self.read_times[places, by] = times
            self.reads.clear()
        return self.read_times

    def read(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        if self.read_times is None:
            self.reads.append((places, by, self.order.times(by)))
        else:
            self.read_times[places, by] = self.order.times(by)
        return self.of_writes(places, by)

    def of_writes(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        bad = self.order.unordered(by, self.writer[places], self.written[places])
        if self.atomic_times is not None:
            bad |= (self.atomic_times[places] > self.order.clocks[by]).any(1)
        return bad

    def write(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        bad = self.of_writes(places, by) | (self.times_of_reads()[places] > self.order.clocks[by]).any(1)
        self.writer[places] = by
        self.written[places] = self.order.times(by)
        return bad

    def atomic(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        bad = self.order.unordered(by, self.writer[places], self.written[places])
        bad |= (self.times_of_reads()[places] > self.order.clocks[by]).any(1)
        if self.atomic_times is None:
            self.atomic_times = self.no_times()
        self.atomic_times[places, by] = self.order.times(by)
        return bad
