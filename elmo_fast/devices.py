"""The devices that there are, asked for by their names."""

from typing import TYPE_CHECKING, Any

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    import torch


def device_named(name: Any, argument: str = "device") -> "torch.device":
    """The torch device called `name`; ElmoFastError when torch does not know it or this machine does not have it.

    argument: what the caller calls it.
    """
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ElmoFastError(f'{argument} must be like "cpu", "cuda" or "cuda:1"; got {name!r}') from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ElmoFastError(f"{argument} {name}: this torch sees {torch.cuda.device_count()} CUDA devices")
    return device
