"""A block's shared memory: bounds, what was never written, races, copies that land when they are waited for."""

import numpy as np

from tests.ptx.program import Instruction, PtxError
from tests.ptx.races import Intervals, Shadow
from tests.ptx.values import UNSIGNED, type_called

ROW = 16  # bytes that ldmatrix reads at once, and the most that cp.async copies
POISON = 0xCB


def granule(code: list[Instruction]) -> int:
    """Bytes of the smallest access in a program: larger ones are aligned, so they consist of some of these."""
    sizes = [ROW]
    for i in code:
        if i.opcode in ("ld", "st", "atom", "red") and "shared" in i.modifiers:
            vector = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
            sizes.append(type_called(i.modifiers[-1]).width // 8 * vector)
        elif i.opcode == "cp" and "shared" in i.modifiers:
            sizes.append(i.operands[2].bits)
    return min(sizes)


class SharedMemory:
    """Of some blocks side by side."""

    def __init__(self, blocks: int, size: int, granule: int, order: Intervals):
        self.size, self.granule = size, granule
        self.stride = -(-size // ROW) * ROW
        self.bytes = np.full(blocks * self.stride, POISON, np.uint8)
        self.written = np.zeros(len(self.bytes) // granule, bool)
        self.shadow = Shadow(len(self.written), order)

    def offsets(self, addresses: np.ndarray, size: int, block: np.ndarray) -> np.ndarray:
        """Where the accesses of lanes begin, in all blocks' memory."""
        at = addresses.astype(np.int64)
        if (at + size > self.size).any():
            raise PtxError(f"shared memory has {self.size} bytes, and {int(at.max())} + {size} is past them")
        if (at % size).any():
            raise PtxError(f"a shared address is no multiple of the {size} bytes that are accessed")
        return block * self.stride + at

    def places(self, offsets: np.ndarray, size: int) -> np.ndarray:
        return offsets[:, None] // self.granule + np.arange(size // self.granule)

    def load(self, addresses: np.ndarray, bits: int, vector: int, block: np.ndarray, by: np.ndarray) -> np.ndarray:
        """[lanes, vector] elements of `bits`, read by the warps `by` [lanes] of the blocks `block` [lanes]."""
        size = bits // 8 * vector
        at = self.offsets(addresses, size, block)
        places = self.places(at, size)
        if not (written := self.written[places]).all():
            lane = int(written.all(1).argmin())
            raise PtxError(f"shared memory at {int(addresses[lane])} is read and was never written, or not waited for")
        self.judge("reads", self.shadow.read(places.reshape(-1), np.repeat(by, places.shape[1])), places, by)
        return self.bytes.view(UNSIGNED[bits])[at[:, None] // (bits // 8) + np.arange(vector)]

    def store(self, addresses: np.ndarray, values: np.ndarray, block: np.ndarray, by: np.ndarray) -> None:
        """values [lanes, vector]"""
        unit, vector = values.dtype.itemsize, values.shape[1]
        at = self.offsets(addresses, unit * vector, block)
        places, units = self.places(at, unit * vector), at[:, None] // unit + np.arange(vector)
        self.claim(places, by, True)
        self.bytes.view(values.dtype)[units] = values
        if (differs := (self.bytes.view(values.dtype)[units] != values).any(1)).any():
            self.judge("writes", np.repeat(differs, places.shape[1]), places, by)

    def atomic(self, addresses: np.ndarray, bits: int, block: np.ndarray, by: np.ndarray) -> list[np.ndarray]:
        """The element of each lane [1], to be read and written at once, one lane after the other."""
        size = bits // 8
        at = self.offsets(addresses, size, block)
        places = self.places(at, size)
        if not (written := self.written[places].all(1)).all():
            raise PtxError(f"an atomic changes shared memory at {int(addresses[written.argmin()])}, which has no value")
        races = self.shadow.atomic(places.reshape(-1), np.repeat(by, places.shape[1]))
        self.judge("atomics", races, places, by)
        units = self.bytes.view(UNSIGNED[bits])
        return [units[unit : unit + 1] for unit in at // size]

    def claim(self, places: np.ndarray, by: np.ndarray, written: bool) -> None:
        """Notes a write: of what is there at once or, `written` False, of a copy that is under way."""
        self.judge("writes", self.shadow.write(places.reshape(-1), np.repeat(by, places.shape[1])), places, by)
        self.written[places] = written

    def judge(self, what: str, races: np.ndarray, places: np.ndarray, by: np.ndarray) -> None:
        if races.any():
            k = int(races.argmax())
            at, warp = int(places.reshape(-1)[k]) * self.granule % self.stride, by[k // places.shape[1]]
            raise PtxError(
                f"a race: {int(races.sum())} {what} of shared memory (first: byte {at}, warp {warp}) "
                "and another warp's access lie between the same two barriers"
            )
