"""The projected LSTM with cell and projection clip: one layer, one or two directions side by side."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, quoted
from elmo_fast.ops._autograd import register_op, requires_grad
from elmo_fast.ops._checks import (
    check_clips,
    check_device,
    check_dtype,
    check_same,
    check_shapes,
    check_tensor,
    check_values,
    checked,
    described,
)
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._packed import PackedWeights, pack
from elmo_fast.ops._precision import check_no_gradient, linear, operand, under_autocast


class LSTMWeights(NamedTuple):
    """Parameters of one direction; gates in torch.nn.LSTM's order i, f, g, o; the forget bias is part of `bias`."""

    weight_ih: Tensor
    """input weights, [4H, I]"""
    weight_hh: Tensor
    """recurrent weights, [4H, D]"""
    bias: Tensor
    """[4H]"""
    weight_hr: Tensor | None = None
    """projection, [D, H]; None: no projection and no projection clip, and D = H"""


def projected_lstm(
    inputs: Sequence[Tensor],
    weights: Sequence[LSTMWeights],
    lengths: Tensor | None = None,
    state: tuple[Tensor, Tensor] | None = None,
    *,
    reverse: Sequence[bool] = (False, True),
    cell_clip: float | None = 3.0,
    projection_clip: float | None = 3.0,
    residual: bool = False,
    recurrent_masks: Sequence[Tensor] | None = None,
    precision: str = "float32",
    packed: PackedWeights | None = None,
    backend: str = "auto",
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run R directions of one LSTM layer with projection over padded sequences.

        i, f, g, o = split(W_ih x_t + W_hh h + b);  c = clip(σ(f) c + σ(i) tanh(g), ±cell_clip)
        h = clip(W_hr (σ(o) tanh(c)), ±projection_clip) * recurrent_mask;  y_t = h (+ x_t if residual)

    The clipped c and h are both output and state; the residual never enters the state. A reversed direction runs from a
    row's last position to its first. After a row's length the state stays as it is and the output is 0. The gradient
    of a clip is torch.clamp's: passed within and at the bound, 0 beyond it.

    Args:
        inputs: R tensors, each direction's input, [B, T, I], float32 or float64; they may be the same tensor.
        weights: R LSTMWeights.
        lengths: valid positions of each row, [B], int64, each in 0..T; None: all T.
        state: (h [R, B, D], c [R, B, H]) to start from; None: zeros.
        reverse: per direction, whether it walks backwards.
        cell_clip, projection_clip: bounds, > 0; None: no clip.
        residual: adds the input to the output; needs I = D.
        recurrent_masks: R tensors [B, D] that multiply h at every step (dropout fixed per sequence); no gradient
            goes to them.
        precision: "float32" | "bfloat16" | "float16" or, without gradients, "int8" ({doc}`numerics`), to which the
            operands of the matrix products are rounded. Products accumulate, and cells are stored, in the dtype of
            the inputs. Under torch.autocast "float32" stands for autocast's dtype, and inputs of any floating dtype are
            cast to float32.
        packed: holds copies of the weights as kernels read them between calls, for inference; None: made at each call.
        backend: "auto" | "native" | "triton" | "reference".

    Returns:
        (outputs [R, B, T, D], (h [R, B, D], c [R, B, H])), the state after each row's last valid step.

    Raises:
        ElmoFastError: an argument does not fit, or the backend cannot serve it.

    Source: Peters et al. 2018, section 3.4; Sak et al. 2014 (LSTMP); TensorFlow's LSTMCell with num_proj.
    """
    op, directions, masks = "projected_lstm", len(inputs), list(recurrent_masks or ())
    if not directions or not directions == len(weights) == len(reverse) or len(masks) not in (0, directions):
        raise ElmoFastError(
            f"{op}: inputs, weights, reverse and recurrent_masks must have one entry per direction; "
            f"got {directions}, {len(weights)}, {len(reverse)} and {len(masks) or 'none'}"
        )
    check_tensor(op, "inputs", inputs[0])
    if state is not None and not (isinstance(state, tuple | list) and len(state) == 2):
        got = described(state) if isinstance(state, Tensor) else quoted(state)
        raise ElmoFastError(f"{op}: state must be a pair (h [R, B, D], c [R, B, H]), or None; got {got}")
    floats: Sequence[Tensor] = [*inputs, *map(Tensor.detach, masks), *(state or ())]
    precision, floats, no_autocast = under_autocast(precision, floats[0].device, *floats, int8=True)
    inputs, masks = list(floats[:directions]), list(floats[directions : directions + len(masks)])
    state = None if state is None else (floats[-2], floats[-1])
    weight_ih, weight_hh, bias, weight_hr = map(list, zip(*weights, strict=True))
    projections = [weight for weight in weight_hr if weight is not None]
    shaped: list[tuple[str, Tensor, str]] = []
    for x, of_input, of_state, offset in zip(inputs, weight_ih, weight_hh, bias, strict=True):
        shaped += [("weight_hh", of_state, "4H D"), ("weight_ih", of_input, "4H I")]
        shaped += [("inputs", x, "B T I"), ("bias", offset, "4H")]
    first = inputs[0].shape
    check_shapes(op, *shaped, **({"B": first[0], "T": first[1]} if len(first) == 3 else {}))
    (batch, time, _), (gates, size) = inputs[0].shape, weight_hh[0].shape
    if gates % 4:
        raise ElmoFastError(f"{op}: weight_hh must have shape [4H, D]; got {described(weight_hh[0])}")
    if projections and len(projections) != directions:
        raise ElmoFastError(f"{op}: all directions must have a weight_hr, or none; got {len(projections)}")
    if not projections and size != gates // 4:
        raise ElmoFastError(f"{op}: without weight_hr, D must equal H; got D={size}, H={gates // 4}")
    shaped = [("weight_hr", weight, "D H") for weight in projections]
    if lengths is not None:
        check_dtype(op, "lengths", lengths, torch.int64)
        shaped.append(("lengths", lengths, "B"))
    if state is not None:
        shaped += [("state[0]", state[0], "R B D"), ("state[1]", state[1], "R B H")]
        check_same(op, "inputs and state", (inputs[0], *state))
    for mask in masks:
        shaped.append(("recurrent_masks", mask, "B D"))
        check_same(op, "inputs and recurrent_masks", (inputs[0], mask))
    check_shapes(op, *shaped, R=directions, B=batch, D=size, H=gates // 4)
    check_same(op, "inputs and weights", [*inputs, *weight_ih, *weight_hh, *bias, *projections], floating=True)
    if lengths is not None:
        check_device(op, "lengths and inputs", lengths, inputs[0])
        check_values(op, "lengths", lengths, time, "lie in 0..T={}")
    if residual and inputs[0].shape[2] != size:
        raise ElmoFastError(
            f"{op}: residual=True needs inputs as wide as outputs; got I={inputs[0].shape[2]}, D={size}"
        )
    check_clips(op, cell_clip=cell_clip, projection_clip=projection_clip)
    cell_clip = math.inf if cell_clip is None else cell_clip
    projection_clip = math.inf if projection_clip is None or not projections else projection_clip
    options = list(reverse), cell_clip, projection_clip, residual, precision
    save = requires_grad(*inputs, *weight_ih, *weight_hh, *bias, *projections, *(state or ()))
    if precision == "int8":
        check_no_gradient(save)
    backend = select(op, backend, inputs[0].device, inputs[0].dtype, precision)
    with no_autocast:
        if backend == "reference":
            run = checked(op, reference)
            outputs, h, c = run(inputs, weights, lengths, state, masks, *options)
            return outputs, (h, c)
        if torch.compiler.is_exporting() and not masks:
            # AOTInductor hands an empty list on as None; ones change no bit.
            masks = [x.new_ones(x.shape[0], size) for x in inputs]
        run, h0_c0 = registered_op(op, backend), state or (None, None)
        copies = None
        if packed is not None and backend == "native":
            copied = functools.partial(pack, precision, gates=[*weight_ih, *weight_hh], plain=projections)
            copies = packed.of(precision, [*weight_ih, *weight_hh, *projections], copied)
        elif packed is not None and not save:
            from elmo_fast.ops.projected_lstm import forward_kernels

            copied = functools.partial(forward_kernels.pack, weight_ih, weight_hh, projections, precision)
            copies = packed.of(precision, [*weight_ih, *weight_hh, *projections], copied)
        arguments = (inputs, weight_ih, weight_hh, bias, projections, lengths, *h0_c0, masks, *options, save, copies)
        outputs, h, c, _ = run(*arguments)
    return outputs, (h, c)


def reference(
    inputs: Sequence[Tensor],
    weights: Sequence[LSTMWeights],
    lengths: Tensor | None,
    state: tuple[Tensor, Tensor] | None,
    masks: Sequence[Tensor],
    reverse: Sequence[bool],
    cell_clip: float,
    projection_clip: float,
    residual: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run all directions, one after the other, step by step, in plain torch: the definition."""
    first, directions = inputs[0], len(inputs)
    batch, time, _ = first.shape
    size, cells = weights[0].weight_hh.shape[1], weights[0].weight_hh.shape[0] // 4
    if lengths is None:
        lengths = torch.full((batch,), time, dtype=torch.int64, device=first.device)
    h0, c0 = state or (first.new_zeros(directions, batch, size), first.new_zeros(directions, batch, cells))
    outputs, hs, cs = [], [], []
    valid = torch.arange(time, device=first.device)[None, :, None] < lengths[:, None, None]

    def scan(x: Tensor, w: LSTMWeights, h: Tensor, c: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        gates_x = linear(x, operand(w.weight_ih, precision), precision) + w.bias
        w_hh = operand(w.weight_hh, precision)
        w_hr = None if w.weight_hr is None else operand(w.weight_hr, precision)
        steps = []
        for t in range(time):
            # NaN stays where it is: rows that have ended are not multiplied, nor is a missing state. The gates of
            # such rows are 0, since the gradient 0 times the derivative at NaN is NaN.
            active = (t < lengths)[:, None]
            known = active if state is not None or t else torch.zeros_like(active)
            recurrent = linear(h.where(active, 0.0), w_hh, precision).where(known, 0.0)
            i, f, g, o = (gates_x[:, t] + recurrent).where(active, 0.0).chunk(4, dim=-1)
            c_new = _clip(torch.sigmoid(f) * c.where(active, 0.0) + torch.sigmoid(i) * torch.tanh(g), cell_clip)
            h_new = torch.sigmoid(o) * torch.tanh(c_new)
            if w_hr is not None:
                h_new = _clip(linear(h_new, w_hr, precision), projection_clip)
            if mask is not None:
                h_new = h_new * mask.where(active, 0.0)
            h, c = torch.where(active, h_new, h), torch.where(active, c_new, c)
            steps.append(h)
        return torch.stack(steps, dim=1) if steps else x.new_zeros(batch, 0, size), h, c

    for r, (x, w) in enumerate(zip(inputs, weights, strict=True)):
        x = x.where(valid, 0.0)
        source = reversed_within(x, lengths) if reverse[r] else x
        y, h, c = scan(source, w, h0[r], c0[r], masks[r] if masks else None)
        y = reversed_within(y, lengths) if reverse[r] else y
        outputs.append(torch.where(valid, y + x if residual else y, 0.0))
        hs.append(h)
        cs.append(c)
    return torch.stack(outputs), torch.stack(hs), torch.stack(cs)


def reversed_within(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first lengths[b] positions of each row b of x [B, T, *]; the others stay in place."""
    position = torch.arange(x.shape[1], device=x.device)[None, :]
    index = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
    return x.gather(1, index[:, :, None].expand_as(x))


def _clip(x: Tensor, bound: float) -> Tensor:
    return x if bound == math.inf else x.clamp(-bound, bound)


def _fake(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    (batch, time, _), directions, new = a.inputs[0].shape, len(a.inputs), a.inputs[0].new_empty
    gates, size = a.weight_hh[0].shape
    return new(directions, batch, time, size), new(directions, batch, size), new(directions, batch, gates // 4)


def _native_saved(a: Any) -> list[Tensor]:
    """Gates, cells and projections of all steps; see csrc/projected_lstm/layout.h."""
    (batch, time, _), directions, new = a.inputs[0].shape, len(a.inputs), a.inputs[0].new_empty
    gates, size = a.weight_hh[0].shape
    blocks, steps = (gates // 4 + 15) // 16, batch * time
    return [new(directions, blocks, steps, 64), new(directions, blocks, steps, 16), new(directions, steps, size)]


def _products(a: Any) -> int:
    weights = [*a.weight_ih, *a.weight_hh, *a.weight_hr]
    return a.inputs[0].shape[:2].numel() * sum(weight.numel() for weight in weights)


register_op("projected_lstm", _fake, _native_saved, _products)
register("projected_lstm", "native", "triton", kernels="elmo_fast.ops.projected_lstm.backward_kernels", int8=True)
