"""Runs a compiled kernel over a grid, on tensors of the CPU."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from tests.ptx.blocks import Blocks, Kernel
from tests.ptx.clocks import Clocks
from tests.ptx.counts import Counts
from tests.ptx.global_memory import GlobalMemory
from tests.ptx.lanes import WARP, Lanes
from tests.ptx.program import PtxError
from tests.ptx.races import Intervals
from tests.ptx.shared_memory import SharedMemory

LANES_AT_ONCE = 16384


class Launch(NamedTuple):
    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    """of a block"""
    shared: int
    """bytes of dynamic shared memory"""
    arguments: Sequence[tuple[str, object]]
    """name and value of each parameter: tensors, whole numbers, floats, the bytes of a struct with addresses of the
    host; then tensors that such a struct names"""
    independent: bool = False
    """nothing is taken for granted of threads of one warp: CUDA C++ promises no more"""

    @property
    def actors(self) -> int:
        """Of a block: what does its accesses in the program's order."""
        return self.threads if self.independent else self.threads // WARP


def encoded(launch: Launch, memory: GlobalMemory) -> bytes:
    """The parameters' bytes, where the program looks for them. Those that no argument is given for are 0."""
    parameters = launch.kernel.program.parameters
    out = bytearray(parameters[-1][1] + parameters[-1][2] // 8 if parameters else 0)
    for (_, offset, bits), (_, value) in zip(parameters, launch.arguments, strict=False):
        if isinstance(value, torch.Tensor):
            value = memory.address_of(value)
        if isinstance(value, bytes):
            out[offset : offset + bits // 8] = memory.translated(value)
            continue
        if isinstance(value, float):
            number = np.array(value, {32: np.float32, 64: np.float64}[bits]).tobytes()
        else:
            number = (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
        out[offset : offset + bits // 8] = number
    return bytes(out)


def run(launch: Launch, counts: Counts, random: np.random.Generator) -> None:
    """Raises PtxError where the kernel does what no kernel may."""
    if launch.threads % WARP:
        raise PtxError(f"{launch.threads} threads are no whole number of warps")
    counts.launches += 1
    blocks = int(np.prod(launch.grid))
    order = (Clocks if launch.kernel.interacts else Intervals)(blocks, launch.actors)
    memory = GlobalMemory([(name, value) for name, value in launch.arguments if isinstance(value, torch.Tensor)], order)
    at_once = max(1, LANES_AT_ONCE // launch.threads)
    numbers = random.permutation(blocks)
    for first in range(0, blocks, at_once):
        together(launch, np.sort(numbers[first : first + at_once]), memory, counts, random).run()


def together(
    launch: Launch, numbers: np.ndarray, memory: GlobalMemory, counts: Counts, random: np.random.Generator
) -> Blocks:
    """Those blocks of the launch."""
    kernel = launch.kernel
    lanes = Lanes(kernel.program, numbers, launch.grid, launch.threads, launch.actors, encoded(launch, memory))
    order = Intervals(int(np.prod(launch.grid)), launch.actors)
    shared = SharedMemory(len(numbers), kernel.program.static + launch.shared, kernel.granule, order)
    return Blocks(kernel, lanes, memory, shared, counts, random)
