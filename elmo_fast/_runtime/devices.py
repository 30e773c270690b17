"""Devices by name, and copies to and from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Where tensors in one block begin, in bytes: as torch aligns its own memory.
ALIGNED = 256


def device_called(name: Any, argument: str = "device") -> torch.device:
    """Return the torch device called `name`, present or not. Raises ElmoFastError when torch does not know the name.

    argument: its name in the error message.
    """
    import torch

    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ElmoFastError(f'{argument} must be like "cpu", "cuda" or "cuda:1"; got {name!r}') from error


def device_named(name: Any, argument: str = "device") -> torch.device:
    """As device_called; also raises ElmoFastError when this machine does not have the device."""
    import torch

    device, reason = device_called(name, argument), ""
    if device.type == "cuda":
        if (device.index or 0) >= (count := torch.cuda.device_count()):
            reason = f"CUDA devices that torch sees: {count}, numbered from 0; a torch for the CPU sees none"
    else:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, ImportError) as error:
            reason = str(error).partition("\n")[0]
    if reason:
        got = f'got {str(name)!r}; give the CPU ("cpu", or the number -1)'
        raise ElmoFastError(f"{argument} must be a device that torch has on this machine; {got}; {reason}")
    return device


def gpu_numbered(number: Any, argument: str = "cuda_device") -> torch.device:
    """Return the device that AllenNLP's cuda_device stands for, below 0 the CPU; ElmoFastError if it is not there."""
    if not hasattr(number, "__index__"):
        raise ElmoFastError(f"{argument} must be the number of a GPU, or -1 for the CPU; got {number!r}")
    return device_named("cpu" if number < 0 else f"cuda:{number}", argument)


def check_int8_device(precision: str, device: torch.device, backend: str, remedy: str = "give device=cpu") -> None:
    """Raise ElmoFastError for int8 on a GPU, which has no kernel for it; its reference runs where it is named.

    remedy: how the caller chooses the CPU.
    """
    if "int8" in precision and backend != "reference" and device.type not in ("cpu", "meta"):
        raise ElmoFastError(
            f"precision=int8 runs on CPUs only; got the device {device}: {remedy}, or precision=bfloat16"
        )


def to_device_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return the tensors, on the host, on a device: to a GPU by one copy of all, for which nothing waits."""
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    packed = pack_together(tensors, pinned=True).to(device, non_blocking=True)
    return parts_of(packed, [(tensor.shape, tensor.dtype) for tensor in tensors])


def pack_together(tensors: Sequence[Tensor], *, pinned: bool) -> Tensor:
    """Return the bytes of tensors on the host, one behind the other, for `parts_of`; pinned: for a copy to a GPU."""
    import torch

    specs = [(tensor.shape, tensor.dtype) for tensor in tensors]
    packed = torch.empty(bytes_needed(specs), dtype=torch.uint8, device="cpu", pin_memory=pinned)
    for part, tensor in zip(parts_of(packed, specs), tensors, strict=True):
        part.copy_(tensor)
    return packed


def bytes_needed(specs: Sequence[tuple[Sequence[int], torch.dtype]]) -> int:
    """Return how many bytes `parts_of` needs for tensors of these shapes and dtypes."""
    return _begins(specs)[-1]


def _begins(specs: Sequence[tuple[Sequence[int], torch.dtype]]) -> list[int]:
    """Return the first byte of each tensor, and where the last one's room ends."""
    sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in specs)
    return list(accumulate((-(-size // ALIGNED) * ALIGNED for size in sizes), initial=0))


def parts_of(packed: Tensor, specs: Sequence[tuple[Sequence[int], torch.dtype]]) -> list[Tensor]:
    """View of the bytes `packed` as tensors of these shapes and dtypes, one behind the other."""
    return [
        packed.narrow(0, begin, math.prod(shape) * dtype.itemsize).view(dtype).view(shape)
        for begin, (shape, dtype) in zip(_begins(specs), specs, strict=False)
    ]


def to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor to the host; the call returned waits for the copy and gives it.

    From a GPU it is copied to pinned memory while the next kernels run. torch keeps pinned memory that is freed, and
    hands it out again once its copy is done: a loop that holds one batch while it computes the next has two buffers.
    """
    if tensor.device.type != "cuda":
        return tensor.cpu
    import torch

    there, copied = torch.empty_like(tensor, device="cpu", pin_memory=True), torch.cuda.Event()
    there.copy_(tensor, non_blocking=True)
    copied.record(torch.cuda.current_stream(tensor.device))

    def arrived() -> Tensor:
        copied.synchronize()
        return there

    return arrived
