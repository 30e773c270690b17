"""negative_sampling in C++: a sum of logarithms as the logarithm of a product, its slopes from the same exponential."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported
from elmo_fast.ops.negative_sampling.rows import gathered


def run(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, *, log_noise: Tensor | None,
    negatives: float, sparse: bool, chunk_bytes: int, precision: str,
) -> Tensor:  # fmt: skip
    rows, offsets, ids = gathered(targets, weight, bias, samples, log_noise, negatives, sparse)
    keep = torch.is_grad_enabled() and (hidden.requires_grad or rows.requires_grad or offsets.requires_grad)
    options = negatives / samples.shape[0], log_noise is not None, precision, chunk_bytes, keep
    losses: Tensor = torch.ops.elmo_fast.negative_sampling(hidden, rows, offsets, ids, *options)[0]
    return losses


def _fake(
    hidden: Tensor, rows: Tensor, offsets: Tensor, ids: Tensor, share: float, count_hits: bool, precision: str,
    chunk_bytes: int, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    count = hidden.shape[0]
    samples = rows.shape[0] - count
    kept = keep and (count <= 1 or count * samples * hidden.element_size() <= chunk_bytes)
    losses = hidden.new_empty(count)
    return losses, losses.new_empty(count), hidden.new_empty(count if kept else 0, samples)


def _fake_backward(grad: Tensor, hidden: Tensor, rows: Tensor, offsets: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return hidden.new_empty(hidden.shape), rows.new_empty(rows.shape), offsets.new_empty(offsets.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden, rows, offsets, ids, *ctx.options, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden, rows, offsets, ids, *output[1:])


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 9
    gradients = torch.ops.elmo_fast.negative_sampling_backward(grad, *ctx.saved_tensors, *ctx.options)
    return (*gradients, None, None, None, None, None, None)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::negative_sampling", _fake)
    torch.library.register_fake("elmo_fast::negative_sampling_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::negative_sampling", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::negative_sampling_backward")
