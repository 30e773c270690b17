"""The memory of a launch's tensors: no access outside them, none that is misaligned, none that races."""

import ctypes

import numpy as np
import torch

from tests.ptx.program import PtxError
from tests.ptx.races import Intervals, Shadow
from tests.ptx.values import UNSIGNED

LARGEST = 16  # bytes of an access
PAGE = 4096  # addresses keep their place in it
APART = 1 << 36  # so many bytes from each other, no access past one tensor's end is within another


class Region:
    """The bytes of tensors that overlap; kernels see them at addresses of their own, `shift` from the host's."""

    def __init__(self, start: int, stop: int, name: str, item: int, number: int):
        self.name, self.item, self.host = name, item, (start, stop)
        # From an address on that every access's size divides; what lies outside start .. stop is never touched.
        base = start // LARGEST * LARGEST
        size = -(-(stop - base) // LARGEST) * LARGEST
        self.bytes = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(base))
        self.shift = APART * (number + 1) + base % PAGE - base
        self.start, self.stop, self.base = (address + self.shift for address in (start, stop, base))
        self.shadow: Shadow | None = None

    def units(self, bits: int) -> np.ndarray:
        return self.bytes.view(UNSIGNED[bits])


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The first address of its elements, and the first past them."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


class GlobalMemory:
    def __init__(self, tensors: list[tuple[str, torch.Tensor]], order: Intervals):
        """Accesses are held against that order."""
        self.order = order
        found = sorted((*extent(t), name, t.element_size()) for name, t in tensors if t.numel())
        joined: list[list] = []
        for start, stop, name, item in found:
            if joined and start < joined[-1][1]:
                last = joined[-1]
                last[1], last[3] = max(stop, last[1]), min(item, last[3])
                last[2] += "" if name in last[2].split(", ") else f", {name}"
            else:
                joined.append([start, stop, name, item])
        self.regions = [Region(*each, number) for number, each in enumerate(joined)]
        self.starts = np.array([r.start for r in self.regions], np.uint64)

    def address_of(self, tensor: torch.Tensor) -> int:
        """What a kernel is given for it."""
        at = tensor.data_ptr()
        return next((at + r.shift for r in self.regions if r.host[0] <= at < r.host[1] and tensor.numel()), 0)

    def translated(self, struct: bytes) -> bytes:
        """A kernel's view of a struct: each address of a tensor's memory in it becomes the one that kernels see."""
        words = np.frombuffer(struct[: len(struct) // 8 * 8], np.uint64).copy()
        for k, at in enumerate(words.tolist()):
            shift = next((r.shift for r in self.regions if r.host[0] <= at < r.host[1]), 0)
            words[k] = at + shift
        return words.tobytes() + struct[len(words) * 8 :]

    def located(self, addresses: np.ndarray, size: int) -> list[tuple[Region, np.ndarray | slice]]:
        """The regions that lanes access, and which lanes; raises where any accesses something else."""
        if (addresses % np.uint64(size)).any():
            raise PtxError(f"an address is no multiple of the {size} bytes that are accessed")
        place = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        found = []
        for number in np.unique(place) if len(place) else ():
            lanes = place == number if (place != number).any() else slice(None)
            region = self.regions[max(number, 0)]
            beyond = (addresses[lanes] + np.uint64(size) > np.uint64(region.stop)) | (number < 0)
            if beyond.any():
                at = int(addresses[lanes][beyond.argmax()]) - region.start
                raise PtxError(
                    f"{int(beyond.sum())} lanes access memory that is no argument's: byte {at} of {region.name}, "
                    f"which has {region.stop - region.start}"
                )
            found.append((region, lanes))
        return found

    def load(self, addresses: np.ndarray, bits: int, vector: int, by: np.ndarray) -> np.ndarray:
        """[lanes, vector] elements of `bits`, read by the warps `by` [lanes]."""
        out = np.empty((len(addresses), vector), UNSIGNED[bits])
        size = bits // 8 * vector
        for region, lanes in self.located(addresses, size):
            offset = (addresses[lanes] - np.uint64(region.base)).astype(np.int64)
            out[lanes] = region.units(bits)[offset[:, None] // (bits // 8) + np.arange(vector)]
            self.note(region, offset, size, by[lanes], False)
        return out

    def store(self, addresses: np.ndarray, values: np.ndarray, by: np.ndarray) -> None:
        """values [lanes, vector]"""
        unit, vector = values.dtype.itemsize, values.shape[1]
        for region, lanes in self.located(addresses, unit * vector):
            offset = (addresses[lanes] - np.uint64(region.base)).astype(np.int64)
            self.note(region, offset, unit * vector, by[lanes], True)
            units = offset[:, None] // unit + np.arange(vector)
            region.units(8 * unit)[units] = values[lanes]
            if (region.units(8 * unit)[units] != values[lanes]).any():
                raise PtxError(f"a race: lanes write different numbers to one place of {region.name}")

    def atomic(self, address: np.uint64, bits: int, by: int, modifiers: tuple[str, ...]) -> np.ndarray:
        """The element at an address [1], to be read and written at once, after what the atomic orders was noted."""
        [(region, _)] = self.located(np.array([address], np.uint64), bits // 8)
        offset = int(address) - region.base
        self.note(region, np.array([offset]), bits // 8, np.array([by]), None)
        self.order.synchronise(by, int(address), modifiers)
        return region.units(bits)[offset // (bits // 8) :][:1]

    def note(self, region: Region, offset: np.ndarray, size: int, by: np.ndarray, write: bool | None) -> None:
        """write: None for an atomic."""
        if region.shadow is None:
            region.shadow = self.order.shadow(-(-len(region.bytes) // region.item))
        several = max(1, size // region.item)
        places = (offset[:, None] // region.item + np.arange(several)).reshape(-1)
        by = np.repeat(by, several)
        shadow = region.shadow
        races = (shadow.atomic if write is None else shadow.write if write else shadow.read)(places, by)
        if races.any():
            k = int(races.argmax())
            what, element = (
                "reads" if write is False else "writes",
                places[k] - (region.start - region.base) // region.item,
            )
            raise PtxError(
                f"a race: {int(races.sum())} {what} of {region.name} (first: element {element}, warp {by[k]}) and "
                "another warp's access are in no order"
            )
