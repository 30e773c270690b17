"""What a launch moves and computes, counted while it runs."""

import collections
import dataclasses

import numpy as np

SECTOR = 32  # bytes: what a warp's access takes from the L2 at least


@dataclasses.dataclass
class Counts:
    launches: int = 0
    sectors_read: int = 0
    """of global memory, 32 bytes each: those that a warp asks for in one instruction count once"""
    sectors_written: int = 0
    shared_bytes: int = 0
    multiplications: int = 0
    """of the tensor cores"""
    atomics: int = 0
    passed: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    """(number of a barrier's instruction, block) -> how often that block came past it"""

    def read(self, addresses: np.ndarray, size: int, by: np.ndarray) -> None:
        self.sectors_read += sectors(addresses, size, by)

    def written(self, addresses: np.ndarray, size: int, by: np.ndarray) -> None:
        self.sectors_written += sectors(addresses, size, by)

    def shared(self, size: int) -> None:
        self.shared_bytes += size

    def product(self, multiplications: int) -> None:
        self.multiplications += multiplications


def sectors(addresses: np.ndarray, size: int, by: np.ndarray) -> int:
    """How many pairs of a warp and a sector there are. No access crosses a sector, being aligned."""
    pairs = np.sort(
        (by.astype(np.uint64) << np.uint64(44)) | (addresses // np.uint64(SECTOR) & np.uint64((1 << 44) - 1))
    )
    return int(np.count_nonzero(pairs[1:] != pairs[:-1])) + (len(pairs) > 0)
