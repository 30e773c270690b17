"""Triton: a layer's two products, gates and mix in one kernel; float32 where the gate carries, 16-bit operands."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._packed import rounded_copy
from elmo_fast.ops.highway import host, host_backward
from elmo_fast.ops.highway.native import BACKWARD, result
from elmo_fast.ops.highway.op import HighwayArguments


def run(a: HighwayArguments) -> Tensor:
    return _forward_op(*a, a.needs_backward())[0]


def _operands(weights: list[Tensor], projection: Tensor | None, dtype: torch.dtype) -> tuple[list[Tensor], Any]:
    return [rounded_copy(w, dtype) for w in weights], None if projection is None else rounded_copy(projection, dtype)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    x, weights, biases, projection_weight, projection_bias, count, precision, save = arguments
    dtype = _triton.operand_dtype(precision)
    operands, projection = _operands(weights, projection_weight, dtype)
    y, saved = host.forward(x, operands, biases, projection, projection_bias, count, dtype, save)
    return y, *saved


def _fake(a: Any) -> tuple[Tensor, ...]:
    dtype = _triton.operand_dtype(a.precision)
    return result(a), *host.allocate(a.x, len(a.weights), a.projection_weight is not None, a.count, dtype, a.save)


def _backward(grad: Tensor, x: Tensor, *arguments: Any) -> tuple[Any, ...]:
    *steps, weights, projection_weight, count, precision, need_x, need_weights = arguments
    dtype = _triton.operand_dtype(precision)
    operands, projection = _operands(weights, projection_weight, dtype)
    saved = host.Saved(*steps)
    return tuple(host_backward.backward(grad, x, saved, operands, projection, count, dtype, need_x, need_weights))


_SAVED = "Tensor first, Tensor rest, Tensor carried, Tensor pre"  # host.Saved
_triton.define(
    f"highway_backward(Tensor grad, Tensor x, {_SAVED}, Tensor[] weights, Tensor? projection_weight, Tensor? count, "
    "str precision, bool need_x, bool need_weights) -> (Tensor x, Tensor[] weights, Tensor[] biases, "
    "Tensor projection_weight, Tensor projection_bias)",
    _backward,
)
_forward_op = _triton.define(
    "highway(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? projection_weight, Tensor? projection_bias, "
    f"Tensor? count, str precision, bool save) -> (Tensor y, {_SAVED})",
    _forward,
    _fake,
    BACKWARD,
)
