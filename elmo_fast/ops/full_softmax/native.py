"""full_softmax in C++: torch's products block by block, each into the gradients' own memory, one pass over each row."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported


def run(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, *, precision: str, chunk_bytes: int) -> Tensor:
    arguments = hidden, targets, weight, bias, precision, chunk_bytes
    losses: Tensor = torch.ops.elmo_fast.full_softmax(*arguments)[0]
    return losses


def _fake(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, precision: str, chunk_bytes: int
) -> tuple[Tensor, Tensor]:
    return hidden.new_empty(hidden.shape[0]), hidden.new_empty(hidden.shape[0])


def _fake_backward(
    grad: Tensor, hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, losses: Tensor, log_sums: Tensor,
    precision: str, chunk_bytes: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return hidden.new_empty(hidden.shape), hidden.new_empty(weight.shape), hidden.new_empty(bias.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.precision, ctx.chunk_bytes = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 6
    d_hidden, d_weight, d_bias = torch.ops.elmo_fast.full_softmax_backward(
        grad, *ctx.saved_tensors, ctx.precision, ctx.chunk_bytes
    )
    return d_hidden, None, d_weight, d_bias, None, None


if _native.C is not None:
    torch.library.register_fake("elmo_fast::full_softmax", _fake)
    torch.library.register_fake("elmo_fast::full_softmax_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::full_softmax", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::full_softmax_backward")
