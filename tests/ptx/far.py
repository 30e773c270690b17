"""Kernels on tensors of more than 2^31 elements, of which only what is accessed takes memory.

Host functions run on fake tensors, so they may be of any size, and their launches are recorded (tests/kernels). Of each
different kernel that is given such a tensor the last block runs in the emulator. Numbers of 32 bits that overflow lead
to an address outside the tensor, which is an error, or to one below 2^31 elements, where the last block has nothing to
do.
"""

import mmap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from elmo_fast.ops import _triton
from tests.kernels.launch import Launch as Recorded
from tests.kernels.launch import identity, recorded
from tests.ptx.counts import Counts
from tests.ptx.global_memory import APART, GlobalMemory, Region
from tests.ptx.launch import Launch, together
from tests.ptx.races import Intervals

FAR = 2**31
TAIL = 2**14  # elements at the end of a tensor that are given a value: the last block looks at no others
NOT_RESERVED = 0x4000  # MAP_NORESERVE, which Python has no name for before 3.13
Values = Mapping[str, int | torch.Tensor]


class Seen(GlobalMemory):
    """Checks bounds, and keeps the first element of each tensor that is accessed."""

    def __init__(self, launch: Launch):
        tensors = [(name, value) for name, value in launch.arguments if torch.is_tensor(value)]
        super().__init__(tensors, Intervals(int(np.prod(launch.grid)), launch.actors))
        self.first: dict[str, int] = {}

    def note(self, region: Region, offset: np.ndarray, size: int, by: np.ndarray, write: bool | None) -> None:
        least = int(offset.min()) // region.item if len(offset) else FAR
        self.first[region.name] = min(least, self.first.get(region.name, least))


def extent(tensor: torch.Tensor) -> int:
    """From its first element to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def sparse(like: torch.Tensor) -> torch.Tensor:
    """Zeros in its shape and strides, in memory that is there once it is accessed."""
    size = (extent(like) if like.numel() else 1) * like.element_size()
    assert size < APART, f"{size} bytes: the emulator's tensors lie {APART} apart"
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NOT_RESERVED)
    return torch.frombuffer(memory, dtype=like.dtype).as_strided(like.shape, like.stride())


def given(name: str, value: Any, values: Values) -> Any:
    """The argument of that name with memory, and with its value, if `values` has one, at its end."""
    if not torch.is_tensor(value):
        return value if value is None else values.get(name, value)
    made = sparse(value)
    if name in values and value.numel():
        tail, wanted = made.view(-1)[-TAIL:], torch.as_tensor(values[name])
        tail.copy_(wanted[-len(tail) :] if wanted.dim() else wanted)
    return made


def is_far(value: Any) -> bool:
    return torch.is_tensor(value) and value.numel() > 0 and extent(value) > FAR


def launches(call: Callable[[], None]) -> dict[str, Recorded]:
    """Of each kernel that is given a far tensor the launch with the largest step, or the last; "name", "name 2", ..."""
    kept: dict[str, tuple[int, Recorded]] = {}
    for each in recorded(call):
        names = dict(zip(each.kernel.arg_names, each.arguments, strict=False))
        if any(map(is_far, each.arguments)) and all(each.grid):
            key, step = identity(each), names.get("step", 0)
            if key not in kept or step >= kept[key][0]:
                kept[key] = step, each
    found: dict[str, Recorded] = {}
    for _, each in kept.values():
        name = each.kernel.fn.__name__
        others = sum(other.split()[0] == name for other in found)
        found[f"{name} {others + 1}" if others else name] = each
    return found


def run(emulator: Any, launch: Recorded, values: Values, first: bool = False) -> dict[str, int | None]:
    """The last block, or the first, of a recorded launch; of each far tensor the first element that it accesses."""
    names = launch.kernel.arg_names
    arguments = [given(name, value, values) for name, value in zip(names, launch.arguments, strict=False)]
    found: dict[str, int | None] = {}

    def one_block(one: Launch) -> None:
        memory, block = Seen(one), np.array([0 if first else int(np.prod(one.grid)) - 1])
        together(one, block, memory, Counts(), np.random.default_rng(0)).run()
        found.update({name: memory.first.get(name) for name, value in one.arguments if is_far(value)})

    emulator.launch = one_block
    try:
        _triton.launch(launch.kernel, launch.grid, *arguments, **launch.constants, **launch.options)
    finally:
        del emulator.launch
    return found
