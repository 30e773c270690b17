"""`precision`: to what the operands of matrix products are rounded (everything else keeps the tensors' dtype)."""

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError

PRECISIONS = ("float32", "bfloat16", "float16")


def check_precision(precision: str) -> None:
    """Raises ElmoFastError unless `precision` is one of PRECISIONS."""
    if precision not in PRECISIONS:
        raise ElmoFastError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")


def rounded(tensor: Tensor, precision: str) -> Tensor:
    """`tensor` rounded to `precision`, dtype kept, the gradient passed unchanged; "float32" rounds nothing."""
    if precision == "float32":
        return tensor
    values = tensor.detach().to(getattr(torch, precision)).to(tensor.dtype)
    return tensor + (values - tensor.detach()) if tensor.requires_grad else values
