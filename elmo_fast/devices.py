"""The devices that there are, asked for by their names."""

from typing import TYPE_CHECKING, Any

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    import torch


def device_called(name: Any, argument: str = "device") -> "torch.device":
    """The torch device called `name`, whether it is there or not; ElmoFastError when torch does not know it.

    argument: what the caller calls it.
    """
    import torch

    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ElmoFastError(f'{argument} must be like "cpu", "cuda" or "cuda:1"; got {name!r}') from error


def device_named(name: Any, argument: str = "device") -> "torch.device":
    """As device_called; ElmoFastError too when this machine does not have the device."""
    import torch

    device = device_called(name, argument)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ElmoFastError(f"{argument} {name}: this torch sees {torch.cuda.device_count()} CUDA devices")
    return device
