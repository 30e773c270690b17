"""The projected LSTM in Triton: per step one kernel for cells and one for the projection, all directions at once."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import Backward, arguments_of
from elmo_fast.ops.projected_lstm.native import OF_WEIGHTS
from elmo_fast.ops.projected_lstm.op import ProjectedLSTMArguments
from elmo_fast.ops.projected_lstm.triton_backward import backward
from elmo_fast.ops.projected_lstm.triton_forward import Layer, forward, layer_of

_OPTIONS = "bool[] reverse, float cell_clip, float projection_clip, bool residual, str precision"
_STEPS = "Tensor step_inputs, Tensor gates, Tensor cells, Tensor projections, Tensor hidden"  # triton_forward.Steps
_FORWARD = (
    "projected_lstm(Tensor[] inputs, Tensor[] weight_ih, Tensor[] weight_hh, Tensor[] bias, Tensor[] weight_hr, "
    f"Tensor? lengths, Tensor? h0, Tensor? c0, Tensor[] masks, {_OPTIONS}, bool save) -> "
    f"(Tensor outputs, Tensor h, Tensor c, {_STEPS}, Tensor order, Tensor falling)"
)
_BACKWARD = (
    "projected_lstm_backward(Tensor d_outputs, Tensor? d_h, Tensor? d_c, Tensor[] inputs, Tensor[] weight_ih, "
    f"Tensor[] weight_hh, Tensor[] weight_hr, Tensor[] masks, {_STEPS}, Tensor order, Tensor falling, "
    f"{_OPTIONS}, bool need_inputs, bool need_weights, bool need_h0) -> "
    "(Tensor[] inputs, Tensor weight_ih, Tensor weight_hh, Tensor bias, Tensor weight_hr, Tensor h0, Tensor c0)"
)
ForwardArguments = arguments_of(_FORWARD)


def run(a: ProjectedLSTMArguments) -> tuple[Tensor, Tensor, Tensor]:
    """Run elmo_fast.ops.projected_lstm."""
    outputs, h, c, *_ = _forward_op(*a.of_op(a.lengths, a.recurrent_masks or []))
    return outputs, h, c


def _forward(a: Any) -> tuple[Tensor, ...]:
    layer, first = layer_of(a), a.inputs[0]
    results, steps, order, falling = forward(a)
    if not a.save:
        return (*results, *_nothing(layer, first))
    return (*results, *steps, falling.new_empty(0) if order is None else order, falling)


def _nothing(layer: Layer, like: Tensor) -> list[Tensor]:
    """Return empty tensors in place of those that a pass would save."""
    return [like.new_empty(0, dtype=dtype) for dtype in _saved_dtypes(layer)]


def _saved_dtypes(layer: Layer) -> tuple[torch.dtype, ...]:
    return layer.dtype, layer.wide, torch.float32, torch.float32, layer.dtype, torch.int64, torch.int64


def _fake(a: Any) -> tuple[Tensor, ...]:
    layer, new = layer_of(a), a.inputs[0].new_empty
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    results = new(r, b, t, d), new(r, b, d), new(r, b, h)
    if not a.save:
        return (*results, *_nothing(layer, a.inputs[0]))
    steps = (r, t, b, layer.width), (r, t, b, 4 * h), (r, t + 1, b, h), (r, t, b, d), (r, t + 1, b, d)
    shapes = *steps, (0 if a.lengths is None else b,), (b,)
    saved = (new(shape, dtype=dtype) for shape, dtype in zip(shapes, _saved_dtypes(layer), strict=True))
    return (*results, *saved)


def _backward(a: Any) -> tuple[Any, ...]:
    d_inputs, d_weights, d_h0, d_c0 = backward(a)
    d_weights += [a.d_outputs.new_empty(0) for _ in range(4 - len(d_weights))]
    return d_inputs, *d_weights, d_h0, d_c0


def _shapes(a: Any) -> dict[str, Any]:
    """Return the shapes of gradients, one tensor for all directions because an op's results may not overlap."""
    layer = layer_of(a)
    r, b, d, h = layer.directions, layer.batch, layer.size, layer.cells
    return {
        "weight_ih": (r, 4 * h, layer.width), "weight_hh": (r, 4 * h, d), "bias": (r, 4 * h),
        "weight_hr": (r, d, h) if a.weight_hr else (0,), "h0": (r, b, d), "c0": (r, b, h),
    }  # fmt: skip


_COVERS = OF_WEIGHTS | {"need_h0": ["h0", "c0"]}
_triton.define(_BACKWARD, _backward)
_forward_op = _triton.define(
    _FORWARD, _forward, _fake, Backward(f"{_triton.NAMESPACE}::projected_lstm_backward", _COVERS, _shapes)
)
