"""The projected LSTM in C++: packed weights, both directions in one parallel region, only active rows touched."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elmo_fast.ops import _native

if TYPE_CHECKING:
    from elmo_fast.ops.projected_lstm.op import LSTMWeights

unsupported = _native.unsupported


def run(
    inputs: list[Tensor],
    weights: "list[LSTMWeights]",
    lengths: Tensor | None,
    state: tuple[Tensor, Tensor] | None,
    *,
    reverse: Sequence[bool],
    cell_clip: float | None,
    projection_clip: float | None,
    residual: bool,
    recurrent_masks: list[Tensor] | None,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """As elmo_fast.ops.projected_lstm."""
    if lengths is None:
        lengths = torch.full((inputs[0].shape[0],), inputs[0].shape[1], dtype=torch.int64)
    masks = recurrent_masks or []
    if torch.compiler.is_exporting() and not masks:  # AOTInductor hands an empty list on as None; ones change no bit
        masks = [x.new_ones(x.shape[0], w.weight_hh.shape[1]) for x, w in zip(inputs, weights, strict=True)]
    needed = [*inputs, *(p for w in weights for p in w if p is not None), *(state or ())]
    outputs, h, c, *_ = torch.ops.elmo_fast.projected_lstm(
        inputs,
        [w.weight_ih for w in weights],
        [w.weight_hh for w in weights],
        [w.bias for w in weights],
        [w.weight_hr for w in weights if w.weight_hr is not None],
        lengths,
        None if state is None else state[0],
        None if state is None else state[1],
        masks,
        list(reverse),
        math.inf if cell_clip is None else cell_clip,
        math.inf if projection_clip is None else projection_clip,
        residual,
        precision,
        torch.is_grad_enabled() and any(t.requires_grad for t in needed),
    )
    return outputs, h, c


def _sizes(inputs: list[Tensor], weight_hh: list[Tensor]) -> tuple[int, int, int, int, int, int]:
    batch, time, _ = inputs[0].shape
    cells = weight_hh[0].shape[0] // 4
    return len(inputs), batch, time, weight_hh[0].shape[1], cells, (cells + 15) // 16 * 16


def _fake(
    inputs: list[Tensor],
    weight_ih: list[Tensor],
    weight_hh: list[Tensor],
    bias: list[Tensor],
    weight_hr: list[Tensor],
    lengths: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    masks: list[Tensor],
    reverse: list[bool],
    cell_clip: float,
    projection_clip: float,
    residual: bool,
    precision: str,
    save: bool,
) -> tuple[Tensor, ...]:
    directions, batch, time, size, cells, padded = _sizes(inputs, weight_hh)
    new, saved = inputs[0].new_empty, batch * time if save else 0
    return (
        new(directions, batch, time, size),
        new(directions, batch, size),
        new(directions, batch, cells),
        new(directions, padded // 16, saved, 64),
        new(directions, padded // 16, saved, 16),
        new(directions, saved, size),
    )


def _fake_backward(
    d_outputs: Tensor,
    d_h: Tensor | None,
    d_c: Tensor | None,
    inputs: list[Tensor],
    weight_ih: list[Tensor],
    weight_hh: list[Tensor],
    weight_hr: list[Tensor],
    *rest: Any,
) -> tuple[Any, ...]:
    need_inputs, need_weights = rest[-2:]
    directions, batch, _, size, cells, _ = _sizes(inputs, weight_hh)
    new = inputs[0].new_empty
    return (
        [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs] if need_inputs else [],
        [new(w.shape) for w in weight_ih] if need_weights else [],
        [new(w.shape) for w in weight_hh] if need_weights else [],
        [new(4 * cells) for _ in weight_hh] if need_weights else [],
        [new(w.shape) for w in weight_hr] if need_weights else [],
        new(directions, batch, size),
        new(directions, batch, cells),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    xs, weight_ih, weight_hh, _, weight_hr, lengths, h0, c0, masks, *options = inputs
    ctx.set_materialize_grads(False)
    ctx.counts = len(xs), len(weight_hr), len(masks)
    ctx.options = options[:-1]
    ctx.save_for_backward(*xs, *weight_ih, *weight_hh, *weight_hr, *masks, lengths, h0, c0, *output[3:])
    ctx.state_given = h0 is not None
    ctx.output_shape = output[0].shape


def _backward(
    ctx: Any, d_outputs: Tensor | None, d_h: Tensor | None, d_c: Tensor | None, *_: Tensor | None
) -> tuple[Any, ...]:
    directions, projections, masked = ctx.counts
    saved = list(ctx.saved_tensors)
    xs, weight_ih, weight_hh = (saved[i * directions : (i + 1) * directions] for i in range(3))
    weight_hr, masks = (
        saved[3 * directions : 3 * directions + projections],
        saved[3 * directions + projections : 3 * directions + projections + masked],
    )
    lengths, h0, c0, gates, cells, hidden = saved[-6:]
    if d_outputs is None:
        d_outputs = xs[0].new_zeros(ctx.output_shape)
    need_inputs = bool(_any(ctx.needs_input_grad[0]))
    need_weights = any(_any(needed) for needed in ctx.needs_input_grad[1:5])
    dx, d_ih, d_hh, d_bias, d_hr, dh0, dc0 = torch.ops.elmo_fast.projected_lstm_backward(
        d_outputs, d_h, d_c, xs, weight_ih, weight_hh, weight_hr, lengths, h0, c0, masks, gates, cells, hidden,
        *ctx.options, need_inputs, need_weights,
    )  # fmt: skip
    none = [None] * directions
    return (
        dx or none,
        d_ih or none,
        d_hh or none,
        d_bias or none,
        d_hr or [None] * projections,
        None,
        dh0 if ctx.state_given else None,
        dc0 if ctx.state_given else None,
        [None] * masked,
        *[None] * (len(ctx.options) + 1),
    )


def _any(needed: Any) -> bool:
    return any(needed) if isinstance(needed, (list, tuple)) else bool(needed)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::projected_lstm", _fake)
    torch.library.register_fake("elmo_fast::projected_lstm_backward", _fake_backward)
    torch.library.register_autograd("elmo_fast::projected_lstm", _backward, setup_context=_setup)
    _native.once_differentiable("elmo_fast::projected_lstm_backward")
