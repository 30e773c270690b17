"""C++ on the CPU: the product, both gates and the mix of each layer in one pass over tiles."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported
from elmo_fast.ops.highway.reference import rows_that_count


def run(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    *,
    precision: str,
    count: Tensor | None,
) -> Tensor:
    counts = None if count is None else rows_that_count(x, count)
    x = x if counts is None else x.where(counts, 0)
    tensors = (x, *weights, *biases, projection_weight, projection_bias)
    save = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    y: Tensor = torch.ops.elmo_fast.highway(
        x, list(weights), list(biases), projection_weight, projection_bias, precision, save
    )[0]
    return y if counts is None else y.where(counts, 0)


def _fake(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    precision: str,
    save: bool,
) -> tuple[Tensor, Tensor]:
    rows, width = x.shape
    y = x.new_empty(rows, width if projection_weight is None else projection_weight.shape[0])
    return y, x.new_empty((len(weights), 3, rows, width) if save else (0,))


def _fake_backward(
    grad: Tensor,
    x: Tensor,
    saved: Tensor,
    weights: list[Tensor],
    projection_weight: Tensor | None,
    precision: str,
    need_x: bool,
    need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    d_projection, d_projection_bias = x.new_empty(0), x.new_empty(0)
    if need_weights and projection_weight is not None:
        d_projection = x.new_empty(projection_weight.shape)
        d_projection_bias = x.new_empty(projection_weight.shape[0])
    layers = weights if need_weights else []
    return (
        x.new_empty(x.shape if need_x else (0,)),
        [w.new_empty(w.shape) for w in layers],
        [w.new_empty(w.shape[0]) for w in layers],
        d_projection,
        d_projection_bias,
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weights, _, projection_weight, projection_bias, ctx.precision, _ = inputs
    ctx.projects, ctx.has_bias = projection_weight is not None, projection_bias is not None
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, output[1], *weights, *([projection_weight] if ctx.projects else []))


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    x, saved, *weights = ctx.saved_tensors
    projection_weight = weights.pop() if ctx.projects else None
    need_x, *parameters = ctx.needs_input_grad[:5]
    need_weights = any(any(needed) if isinstance(needed, (list, tuple)) else needed for needed in parameters)
    dx, d_weights, d_biases, d_projection, d_projection_bias = torch.ops.elmo_fast.highway_backward(
        grad, x, saved, weights, projection_weight, ctx.precision, need_x, need_weights
    )
    nothing = [None] * len(weights)
    return (
        dx if need_x else None,
        d_weights if need_weights else nothing,
        d_biases if need_weights else nothing,
        d_projection if need_weights and ctx.projects else None,
        d_projection_bias if need_weights and ctx.has_bias else None,
        None,
        None,
    )


if _native.C is not None:
    torch.library.register_fake("elmo_fast::highway", _fake)
    torch.library.register_fake("elmo_fast::highway_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::highway", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::highway_backward")
