"""sampled_softmax in C++: 16-bit products on packed rows, losses and probabilities in one pass over a row of logits."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported
from elmo_fast.ops.sampled_softmax.rows import gathered


def run(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, tries: Tensor | int, *,
    correction: str, sparse: bool, chunk_bytes: int, precision: str,
) -> Tensor:  # fmt: skip
    rows, offsets, ids = gathered(targets, weight, bias, samples, tries, correction, sparse)
    keep = torch.is_grad_enabled() and (hidden.requires_grad or rows.requires_grad or offsets.requires_grad)
    losses: Tensor = torch.ops.elmo_fast.sampled_softmax(hidden, rows, offsets, ids, precision, chunk_bytes, keep)[0]
    return losses


def _fake(
    hidden: Tensor, rows: Tensor, offsets: Tensor, ids: Tensor, precision: str, chunk_bytes: int, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    count = hidden.shape[0]
    samples = rows.shape[0] - count
    kept = keep and (count <= 1 or count * samples * hidden.element_size() <= chunk_bytes)
    losses = hidden.new_empty(count)
    return losses, losses.new_empty(count), hidden.new_empty(count if kept else 0, samples)


def _fake_backward(grad: Tensor, hidden: Tensor, rows: Tensor, offsets: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return hidden.new_empty(hidden.shape), rows.new_empty(rows.shape), offsets.new_empty(offsets.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden, rows, offsets, ids, ctx.precision, ctx.chunk_bytes, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden, rows, offsets, ids, *output)


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 7
    gradients = torch.ops.elmo_fast.sampled_softmax_backward(grad, *ctx.saved_tensors, ctx.precision, ctx.chunk_bytes)
    return (*gradients, None, None, None, None)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::sampled_softmax", _fake)
    torch.library.register_fake("elmo_fast::sampled_softmax_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::sampled_softmax", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::sampled_softmax_backward")
