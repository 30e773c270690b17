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

    def synchronise(self, by: int, address: int, modifiers: tuple[str, ...]) -> None:
        """An atomic; here are none that order anything."""

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
    """Of every place of a memory the last write, reads and atomics, and which accesses race with them."""

    def __init__(self, places: int, order: Intervals):
        self.order = order
        self.writer, self.written = np.full(places, NOBODY, np.int32), np.zeros(places, np.int32)
        self.reader, self.read_at = np.full(places, NOBODY, np.int32), np.zeros(places, np.int32)
        self.changer, self.changed = self.reader[:0], self.read_at[:0]  # by atomics, where there are any

    def join(self, who: np.ndarray, when: np.ndarray, places: np.ndarray, by: np.ndarray) -> None:
        """Notes in who, when [places] accesses that do not race with each other."""
        others = who[places]
        several = self.order.unordered(by, others, when[places])
        joint = np.where(several, self.order.both(by, others), by)
        who[places] = joint
        lost = who[places] != joint  # several warps in one instruction
        if lost.any():
            at = places[lost]
            joined = self.order.both(joint[lost], who[at])
            who[at] = joined
            who[at[joined == ANYBODY]] = ANYBODY
        when[places] = self.order.times(by)

    def read(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Notes reads of places [n] by warps [n]; True for each that races with a write."""
        self.join(self.reader, self.read_at, places, by)
        return self.of_writes(places, by)

    def of_writes(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        """True for each place whose last write or atomic is in no order with what the warps do now."""
        bad = self.order.unordered(by, self.writer[places], self.written[places])
        if len(self.changer):
            bad |= self.order.unordered(by, self.changer[places], self.changed[places])
        return bad

    def write(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        """As `read`, of writes: True for each that races with a read or another write.

        Warps that write in one instruction do not: who stores looks whether they write the same, as Triton's do.
        """
        bad = self.of_writes(places, by)
        bad |= self.order.unordered(by, self.reader[places], self.read_at[places])
        self.writer[places] = by
        self.written[places] = self.order.times(by)
        return bad

    def atomic(self, places: np.ndarray, by: np.ndarray) -> np.ndarray:
        """As `read`, of atomics: True for each that races with a plain access. Atomics race with none of their kind."""
        if not len(self.changer):
            self.changer, self.changed = np.full_like(self.writer, NOBODY), np.zeros_like(self.written)
        bad = self.order.unordered(by, self.writer[places], self.written[places])
        bad |= self.order.unordered(by, self.reader[places], self.read_at[places])
        self.join(self.changer, self.changed, places, by)
        return bad
