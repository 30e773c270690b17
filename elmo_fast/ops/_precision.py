"""`precision`: dtype to which operands of matrix products are rounded (everything else keeps the tensors' dtype)."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.errors import ElmoFastError, check_choice
from elmo_fast.op_choices import INFERENCE_PRECISIONS, PRECISIONS


def check_precision(precision: str, int8: bool = False) -> None:
    """Raise ElmoFastError unless `precision` is one of PRECISIONS, or "int8" if the op supports it."""
    check_choice("precision", precision, INFERENCE_PRECISIONS if int8 else PRECISIONS)


def check_no_gradient(needs_backward: bool) -> None:
    """Raise ElmoFastError if a gradient through int8 operands would be needed."""
    if needs_backward:
        raise ElmoFastError(
            'precision="int8" is for inference and has no gradients; run it within torch.no_grad(), or '
            'train with precision="bfloat16"'
        )


def under_autocast(
    precision: str, device: torch.device, *tensors: Tensor, int8: bool = False
) -> tuple[str, Sequence[Tensor], contextlib.AbstractContextManager[object]]:
    """Return the precision to compute with, tensors that other layers computed, and a context for the backend.

    Under torch.autocast for this device, "float32" means autocast's dtype, the tensors, which may then be 16-bit, are
    cast to float32, and the context disables autocast, so that torch's products compute in their operands' dtype.
    Otherwise none of them changes anything. Raises ElmoFastError if `precision` is unknown.
    """
    if precision not in (INFERENCE_PRECISIONS if int8 else PRECISIONS):
        check_precision(precision, int8)
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):  # torch raises an error for meta
        return precision, tensors, contextlib.nullcontext()
    dtype = str(torch.get_autocast_dtype(device.type)).removeprefix("torch.")
    if precision == "float32" and dtype in PRECISIONS:
        precision = dtype
    halves = (torch.float16, torch.bfloat16)
    floats = [tensor.float() if tensor.dtype in halves else tensor for tensor in tensors]
    return precision, floats, torch.autocast(device.type, enabled=False)


def autocast_of_caller(device: torch.device) -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Return a function that opens the caller's autocast for `device` in another thread, which begins without it."""
    if device.type == "meta":
        return contextlib.nullcontext
    enabled, dtype = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
    return lambda: torch.autocast(device.type, dtype, enabled)


def torch_settings(device: torch.device) -> tuple[str, ...]:
    """Return torch's settings that decide a result besides tensors and arguments, those that are not the default.

    They are autocast and how products round. The key of whatever outlives a call and stands for its numbers (a captured
    graph, a file of vectors) contains them.
    """
    cuda, backends = device.type == "cuda", cast(Any, torch.backends)  # mypy does not see what they define late
    matmul = backends.cuda.matmul if cuda else backends.mkldnn.matmul
    rnn = backends.cudnn.rnn if cuda else backends.mkldnn.rnn
    autocast = device.type != "meta" and torch.is_autocast_enabled(device.type)  # torch raises an error for meta
    settings = [
        ("autocast", str(torch.get_autocast_dtype(device.type)) if autocast else "off", ("off",)),
        ("float32 products", matmul.fp32_precision, ("none", "ieee")),
        ("float32 recurrence", rnn.fp32_precision, ("tf32",) if cuda else ("none", "ieee")),
    ]
    if cuda:
        settings += [
            ("bfloat16 sums", str(matmul.allow_bf16_reduced_precision_reduction), ("True",)),
            ("float16 sums", str(matmul.allow_fp16_reduced_precision_reduction), ("True",)),
            ("float32 convolutions", backends.cudnn.conv.fp32_precision, ("tf32",)),
            ("float16 accumulation", str(matmul.allow_fp16_accumulation), ("False",)),
        ]
    return tuple(f"{name} {value}" for name, value, defaults in settings if value not in defaults)


def rounded(tensor: Tensor, precision: str) -> Tensor:
    """Round `tensor` to `precision`, keep its dtype and pass the gradient unchanged; "float32" rounds nothing."""
    if precision == "float32":
        return tensor
    values = tensor.detach().to(getattr(torch, precision)).to(tensor.dtype)
    # infinity - infinity would be NaN
    moved = torch.where(tensor.isfinite(), values - tensor, 0).detach()
    return tensor + moved if tensor.requires_grad else values


class Quantized(NamedTuple):
    """Rows of integers with one scale each: row n of the tensor is about `integers[n] * scale[n]`."""

    integers: Tensor
    """within -127..127, [*, N, K], float64, so that their products are exact"""
    scale: Tensor
    """largest magnitude of the row / 127, [*, N, 1]; 0 if that is below 2^-100, NaN if a number is not finite"""


def quantized(tensor: Tensor) -> Quantized:
    """Quantize each row (of the last dimension) to integers times one scale; halves are rounded to even."""
    if tensor.shape[-1] == 0:
        return Quantized(tensor.double(), tensor.new_zeros(*tensor.shape[:-1], 1))
    largest = tensor.abs().amax(-1, keepdim=True)
    zero, finite = largest < 2.0**-100, largest.isfinite()
    scale = (largest / 127).where(~zero, 0.0).where(finite, torch.nan)
    times = torch.full_like(largest, 127.0) / largest
    return Quantized((tensor * times).round().where(finite & ~zero, 0.0).double(), scale)


def operand(weight: Tensor, precision: str) -> Tensor | Quantized:
    """Return the right operand of `linear`, rounded once for several products."""
    return quantized(weight) if precision == "int8" else rounded(weight, precision)


def linear(x: Tensor, weight: Tensor | Quantized, precision: str, bias: Tensor | None = None) -> Tensor:
    """Compute x weight^T (+ bias) with x rounded to `precision`; `operand` has already rounded the weight."""
    if not isinstance(weight, Quantized):
        return F.linear(rounded(x, precision), weight, bias)
    left = quantized(x)
    products = (left.integers @ weight.integers.mT).to(x.dtype) * (left.scale * weight.scale.mT)
    return products if bias is None else products + bias
