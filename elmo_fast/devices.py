"""Devices by name, and copies to and from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Where tensors that are sent together begin: kernels load 16 bytes at a time from such addresses.
ALIGNED = 64


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

    device = device_called(name, argument)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ElmoFastError(
            f"{argument} must be a device of this machine, where torch sees {torch.cuda.device_count()} CUDA devices; "
            f'got {str(name)!r}; give "cpu", or install a torch for CUDA if there is a GPU'
        )
    return device


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on a device, without waiting for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def sent_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return the tensors, on the host, on a device: to a GPU by one copy of all, for which nothing waits."""
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    import torch

    packed = torch.empty(sum(map(_room, tensors)), dtype=torch.uint8, pin_memory=True)
    for part, tensor in zip(parts_of(packed, tensors), tensors, strict=True):
        part.copy_(tensor)
    return parts_of(packed.to(device, non_blocking=True), tensors)


def _room(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


def parts_of(packed: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """View of the bytes `packed` with the shapes and dtypes of the tensors, one behind the other."""
    begins = accumulate(map(_room, tensors), initial=0)
    return [
        packed[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for begin, tensor in zip(begins, tensors, strict=False)
    ]


def received(tensor: Tensor) -> Callable[[], Tensor]:
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
