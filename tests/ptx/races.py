"""Which accesses to one place race: two warps', at least one a write, and nothing made one wait for the other.

A barrier orders the warps of a block: it ends an interval, and what two of them do within one interval is in no order.
"""

import numpy as np

NOBODY, ANYBODY = -1, np.iinfo(np.int32).max


def number_of(block: np.ndarray, warp: np.ndarray, warps: int) -> np.ndarray:
    """A number for a warp of a launch; warp = `warps`, one more than there are, stands for several of that block."""
    return (block * (warps + 1) + warp).astype(np.int32)


class Intervals:
    """The order among warps whose blocks never wait for each other: barriers alone."""

    def __init__(self, blocks: int, warps: int):
        self.warps = warps
        self.now = np.zeros(blocks, np.int32)

    def block_of(self, numbers: np.ndarray) -> np.ndarray:
        return numbers // (self.warps + 1)

    def barrier(self, blocks: np.ndarray) -> None:
        """All warps of these blocks have come to one barrier."""
        self.now[blocks] += 1

    def times(self, by: np.ndarray) -> np.ndarray:
        """What `unordered` will be asked about an access by these warps now."""
        return self.now[self.block_of(by)]

    def unordered(self, by: np.ndarray, other: np.ndarray, when: np.ndarray) -> np.ndarray:
        """Whether what `other` did at the time `when` is in no order with what `by` does now."""
        same_block = self.block_of(other) == self.block_of(by)
        return (other != NOBODY) & (other != by) & ~(same_block & (when < self.times(by)))

    def both(self, by: np.ndarray, other: np.ndarray) -> np.ndarray:
        """One number for two warps that read a place."""
        block = self.block_of(by)
        return np.where(self.block_of(other) == block, number_of(block, self.warps, self.warps), ANYBODY)

    def shadow(self, places: int) -> "Shadow":
        """What holds the accesses of a memory against this order."""
        return Shadow(places, self)


class Shadow:
    """Of every place of a memory the last write and the last reads, and which accesses race with them."""

    def __init__(self, places: int, order: Intervals):
        self.order = order
        self.writer, self.written = np.full(places, NOBODY, np.int32), np.zeros(places, np.int32)
        self.reader, self.read_at = np.full(places, NOBODY, np.int32), np.zeros(places, np.int32)

    def read(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Notes reads of places [n] by warps [n]; True for each that races with a write."""
        others = self.reader[places]
        several = self.order.unordered(by, others, self.read_at[places])
        readers = np.where(several, self.order.both(by, others), by)
        self.reader[places] = readers
        lost = self.reader[places] != readers  # several warps in one instruction
        if lost.any():
            at = places[lost]
            joined = self.order.both(readers[lost], self.reader[at])
            self.reader[at] = joined
            self.reader[at[joined == ANYBODY]] = ANYBODY
        self.read_at[places] = self.order.times(by)
        return self.order.unordered(by, self.writer[places], self.written[places])

    def write(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        """As `read`, of writes: True for each that races with a read or another write.

        Warps that write in one instruction do not: who stores looks whether they write the same, as Triton's do.
        """
        bad = self.order.unordered(by, self.writer[places], self.written[places])
        bad |= self.order.unordered(by, self.reader[places], self.read_at[places])
        self.writer[places] = by
        self.written[places] = self.order.times(by)
        return bad
