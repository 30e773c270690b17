"""`precision`: to what the operands of matrix products are rounded (everything else keeps the tensors' dtype)."""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from elmo_fast.errors import check_choice
from elmo_fast.op_choices import PRECISIONS


def check_precision(precision: str) -> None:
    """Raises ElmoFastError unless `precision` is one of PRECISIONS."""
    check_choice("precision", precision, PRECISIONS)


def _has_autocast(device: torch.device) -> bool:
    return device.type != "meta" and torch.is_autocast_enabled(device.type)  # torch knows none of meta, and says so


def under_autocast(precision: str, device: torch.device) -> tuple[str, Callable[[Tensor], Tensor]]:
    """The precision to compute with, and what to do first with tensors that other layers made.

    Under torch.autocast for this device, "float32" stands for autocast's dtype, and such tensors, which may be 16 bit
    then, are cast to float32. Elsewhere both are as given. Raises ElmoFastError when `precision` is unknown.
    """
    check_precision(precision)
    if not _has_autocast(device):
        return precision, lambda tensor: tensor
    dtype = str(torch.get_autocast_dtype(device.type)).removeprefix("torch.")
    if precision == "float32" and dtype in PRECISIONS:
        precision = dtype
    return precision, lambda tensor: tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Within it torch's own products compute in what they are given: precision is applied already."""
    if _has_autocast(device):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()


def rounded(tensor: Tensor, precision: str) -> Tensor:
    """`tensor` rounded to `precision`, dtype kept, the gradient passed unchanged; "float32" rounds nothing."""
    if precision == "float32":
        return tensor
    values = tensor.detach().to(getattr(torch, precision)).to(tensor.dtype)
    # Infinity less itself would be NaN.
    moved = torch.where(tensor.isfinite(), values - tensor, 0).detach()
    return tensor + moved if tensor.requires_grad else values
