"""From the host to a device, and back."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError

# Where tensors that are sent together begin: kernels load 16 bytes at a time from such addresses.
ALIGNED = 64


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, without waiting for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def sent_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The tensors, on the host, on a device: to a GPU by one copy of all, for which nothing waits."""
    if device.type != "cuda":
        return [tensor.to(device) for tensor in tensors]
    packed = torch.empty(sum(map(_room, tensors)), dtype=torch.uint8, pin_memory=True)
    for part, tensor in zip(parts_of(packed, tensors), tensors, strict=True):
        part.copy_(tensor)
    return parts_of(packed.to(device, non_blocking=True), tensors)


def _room(tensor: Tensor) -> int:
    return -(-tensor.nbytes // ALIGNED) * ALIGNED


def parts_of(packed: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of the bytes `packed` with the shapes and dtypes of the tensors, one behind the other."""
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
    there, copied = torch.empty_like(tensor, device="cpu", pin_memory=True), torch.cuda.Event()
    there.copy_(tensor, non_blocking=True)
    copied.record(torch.cuda.current_stream(tensor.device))

    def arrived() -> Tensor:
        copied.synchronize()
        return there

    return arrived


def drawn_to(op: str, drawn: Sequence[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    """Copies what `op` drew on the CPU to a device without waiting, to a GPU through pinned memory.

    Raises ElmoFastError while a CUDA graph is captured, because each replay would copy the same numbers.
    """
    if device.type != "cuda":
        return tuple(tensor.to(device) for tensor in drawn)
    if not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing():
        raise ElmoFastError(
            f"{op}: a CUDA graph cannot hold a sample drawn on the CPU, which every replay would repeat; "
            "draw before the graph, or by a backend of the GPU where the op has one"
        )
    return tuple(sent(tensor, device) for tensor in drawn)
