"""Devices by name."""

from typing import TYPE_CHECKING, Any

from elmo_fast.errors import ElmoFastError

if TYPE_CHECKING:
    import torch


def device_called(name: Any, argument: str = "device") -> "torch.device":
    """The torch device called `name`, present or not. Raises ElmoFastError when torch does not know the name.

    argument: its name in the error message.
    """
    import torch

    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ElmoFastError(f'{argument} must be like "cpu", "cuda" or "cuda:1"; got {name!r}') from error


def device_named(name: Any, argument: str = "device") -> "torch.device":
    """As device_called; also raises ElmoFastError when this machine does not have the device."""
    import torch

    device = device_called(name, argument)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ElmoFastError(
            f"{argument} must be a device of this machine, where torch sees {torch.cuda.device_count()} CUDA devices; "
            f'got {str(name)!r}; give "cpu", or install a torch for CUDA if there is a GPU'
        )
    return device
