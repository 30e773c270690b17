"""Triton: a layer's two products, gates and mix in one kernel; float32 where the gate carries, 16-bit operands."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._packed import rounded_copy
from elmo_fast.ops._triton import unsupported as unsupported
from elmo_fast.ops.highway import host, host_backward
from elmo_fast.ops.highway.host import Saved


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
    tensors = (x, *weights, *biases, projection_weight, projection_bias)
    save = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    y: Tensor = _forward_op(x, list(weights), list(biases), projection_weight, projection_bias, count, precision, save)[
        0
    ]
    return y


def _operands(weights: Sequence[Tensor], projection: Tensor | None, dtype: torch.dtype) -> tuple[list[Tensor], Any]:
    return [rounded_copy(w, dtype) for w in weights], None if projection is None else rounded_copy(projection, dtype)


def _forward(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    count: Tensor | None,
    precision: str,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dtype = _triton.operand_dtype(precision)
    operands, projection = _operands(weights, projection_weight, dtype)
    y, saved = host.forward(x, operands, biases, projection, projection_bias, count, dtype, save)
    return y, *saved


def _fake(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    count: Tensor | None,
    precision: str,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    y = x.new_empty(x.shape[0], x.shape[1] if projection_weight is None else projection_weight.shape[0])
    dtype = _triton.operand_dtype(precision)
    return y, *host.allocate(x, len(weights), projection_weight is not None, count, dtype, save)


def _backward_run(
    grad: Tensor,
    x: Tensor,
    saved: list[Tensor],
    weights: list[Tensor],
    projection_weight: Tensor | None,
    count: Tensor | None,
    precision: str,
    need_x: bool,
    need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    dtype = _triton.operand_dtype(precision)
    operands, projection = _operands(weights, projection_weight, dtype)
    return tuple(
        host_backward.backward(grad, x, Saved(*saved), operands, projection, count, dtype, need_x, need_weights)
    )  # type: ignore[return-value]


def _fake_backward(
    grad: Tensor,
    x: Tensor,
    saved: list[Tensor],
    weights: list[Tensor],
    projection_weight: Tensor | None,
    count: Tensor | None,
    precision: str,
    need_x: bool,
    need_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    layers = weights if need_weights else []
    projection = projection_weight if need_weights else None
    return (
        x.new_empty(x.shape if need_x else (0,)),
        [w.new_empty(w.shape) for w in layers],
        [w.new_empty(w.shape[0]) for w in layers],
        x.new_empty(0 if projection is None else projection.shape),
        x.new_empty(0 if projection is None else projection.shape[0]),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weights, _, projection_weight, projection_bias, count, ctx.precision, _ = inputs
    ctx.projects, ctx.has_bias = projection_weight is not None, projection_bias is not None
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(x, count, *output[1:], *weights, *([projection_weight] if ctx.projects else []))


def _backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    x, count, *others = ctx.saved_tensors
    saved, weights = others[:4], others[4:]
    projection_weight = weights.pop() if ctx.projects else None
    need_x, *parameters = ctx.needs_input_grad[:5]
    need_weights = any(any(needed) if isinstance(needed, (list, tuple)) else needed for needed in parameters)
    dx, d_weights, d_biases, d_projection, d_projection_bias = _backward_op(
        grad, x, saved, weights, projection_weight, count, ctx.precision, need_x, need_weights
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
        None,
    )


_backward_op = _triton.define(
    "highway_backward(Tensor grad, Tensor x, Tensor[] saved, Tensor[] weights, Tensor? projection_weight, "
    "Tensor? count, str precision, bool need_x, bool need_weights) -> (Tensor x, Tensor[] weights, Tensor[] biases, "
    "Tensor projection_weight, Tensor projection_bias)",
    _backward_run,
    _fake_backward,
)
# first, rest, carried, pre: host.Saved
_forward_op = _triton.define(
    "highway(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? projection_weight, Tensor? projection_bias, "
    "Tensor? count, str precision, bool save) -> (Tensor y, Tensor first, Tensor rest, Tensor carried, Tensor pre)",
    _forward,
    _fake,
    _setup,
    _backward,
)
