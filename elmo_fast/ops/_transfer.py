"""From the host to a device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, without waiting for it."""
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


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
