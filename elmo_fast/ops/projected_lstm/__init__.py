"""The projected LSTM with cell and projection clip: one layer, one or two directions side by side."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError, quoted
from elmo_fast.ops import _checks
from elmo_fast.ops._autograd import Backward, describe, requires_grad
from elmo_fast.ops._dispatch import checked, kernel, register, select
from elmo_fast.ops._packed import PackedWeights
from elmo_fast.ops._precision import check_no_gradient, under_autocast
from elmo_fast.ops.projected_lstm import reference
from elmo_fast.ops.projected_lstm.reference import LSTMWeights


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
        packed: holds packed copies of the weights between calls, for inference on the CPU; None: packs at each call.
        backend: "auto" | "native" | "triton" | "reference".

    Returns:
        (outputs [R, B, T, D], (h [R, B, D], c [R, B, H])), the state after each row's last valid step.

    Raises:
        ElmoFastError: an argument does not fit, or the backend cannot serve it.

    Source: Peters et al. 2018, section 3.4; Sak et al. 2014 (LSTMP); TensorFlow's LSTMCell with num_proj.
    """
    _check_lists(inputs, weights, reverse, recurrent_masks)
    _checks.check_shapes("projected_lstm", ("inputs", inputs[0], "B T I"))
    precision, cast, no_autocast = under_autocast(precision, inputs[0].device, int8=True)
    inputs, recurrent_masks = [cast(x) for x in inputs], recurrent_masks and [cast(m.detach()) for m in recurrent_masks]
    if state is not None:
        if not isinstance(state, tuple | list) or len(state) != 2:
            got = _checks.described(state) if isinstance(state, Tensor) else quoted(state)
            raise ElmoFastError(f"projected_lstm: state must be a pair (h [R, B, D], c [R, B, H]), or None; got {got}")
        state = cast(state[0]), cast(state[1])
    batch, time, _ = inputs[0].shape
    for x, w in zip(inputs, weights, strict=True):
        _check_direction(x, w, batch, time, residual)
    _checks.check_clips("projected_lstm", cell_clip=cell_clip, projection_clip=projection_clip)
    size, cells = weights[0].weight_hh.shape[1], weights[0].weight_hh.shape[0] // 4
    if lengths is not None:
        _check_lengths(lengths, inputs[0])
    if state is not None:
        states = ("state[0]", state[0], "R B D"), ("state[1]", state[1], "R B H")
        _checks.check_shapes("projected_lstm", *states, R=len(inputs), B=batch, D=size, H=cells)
        _checks.check_same("projected_lstm", "inputs and state", (inputs[0], *state))
    for mask in recurrent_masks or ():
        _checks.check_shapes("projected_lstm", ("recurrent_masks", mask, "B D"), B=batch, D=size)
        _checks.check_same("projected_lstm", "inputs and recurrent_masks", (inputs[0], mask))
    weight_ih, weight_hh, bias, weight_hr = map(list, zip(*weights, strict=True))
    projections = [weight for weight in weight_hr if weight is not None]
    cell_clip = math.inf if cell_clip is None else cell_clip
    projection_clip = math.inf if projection_clip is None or not projections else projection_clip
    masks, options = list(recurrent_masks or ()), (list(reverse), cell_clip, projection_clip, residual, precision)
    save = requires_grad(*inputs, *weight_ih, *weight_hh, *bias, *projections, *(state or ()))
    if precision == "int8":
        check_no_gradient(save)
    backend = select("projected_lstm", backend, inputs[0].device, inputs[0].dtype, precision)
    with no_autocast:
        if backend == "reference":
            run = checked("projected_lstm", reference.projected_lstm)
            outputs, h, c = run(inputs, weights, lengths, state, masks, *options)
            return outputs, (h, c)
        if (
            torch.compiler.is_exporting() and not masks
        ):  # AOTInductor hands an empty list on as None; ones change no bit
            masks = [x.new_ones(batch, size) for x in inputs]
        run, h0_c0 = kernel("projected_lstm", backend), state or (None, None)
        copies = None
        if packed is not None and backend == "native":
            copies = packed.of(precision, gates=[*weight_ih, *weight_hh], plain=projections)
        arguments = (inputs, weight_ih, weight_hh, bias, projections, lengths, *h0_c0, masks, *options, save, copies)
        outputs, h, c, _ = run(*arguments)
    return outputs, (h, c)


def _check_lists(
    inputs: Sequence[Tensor],
    weights: Sequence[LSTMWeights],
    reverse: Sequence[bool],
    masks: Sequence[Tensor] | None,
) -> None:
    counts = (len(inputs), len(weights), len(reverse), len(inputs) if masks is None else len(masks))
    if len(set(counts)) != 1 or counts[0] == 0:
        raise ElmoFastError(
            "projected_lstm: inputs, weights, reverse and recurrent_masks must have one entry per direction; "
            f"got {counts[0]}, {counts[1]}, {counts[2]} and {'none' if masks is None else len(masks)}"
        )
    sizes = {tuple(w.weight_hh.shape) for w in weights}
    if len(sizes) != 1 or len({w.weight_hr is None for w in weights}) != 1:
        raise ElmoFastError(
            f"projected_lstm: all directions must share the sizes [4H, D] of weight_hh; got {sorted(sizes)}"
        )


def _check_direction(x: Tensor, w: LSTMWeights, batch: int, time: int, residual: bool) -> None:
    op = "projected_lstm"
    _checks.check_shapes(op, ("weight_hh", w.weight_hh, "4H D"))
    gates, size = w.weight_hh.shape
    if gates % 4:
        raise ElmoFastError(f"{op}: weight_hh must have shape [4H, D]; got {_checks.described(w.weight_hh)}")
    shaped = [("weight_ih", w.weight_ih, "4H I"), ("inputs", x, "B T I"), ("bias", w.bias, "4H")]
    if w.weight_hr is not None:
        shaped.append(("weight_hr", w.weight_hr, "D H"))
    _checks.check_shapes(op, *shaped, B=batch, T=time, D=size, H=gates // 4, **{"4H": gates})
    if w.weight_hr is None and size != gates // 4:
        raise ElmoFastError(f"{op}: without weight_hr, D must equal H; got D={size}, H={gates // 4}")
    if residual and x.shape[2] != size:
        raise ElmoFastError(f"{op}: residual=True needs inputs as wide as outputs; got I={x.shape[2]}, D={size}")
    _checks.check_floating(op, "inputs", x)
    _checks.check_same(op, "inputs and weights", [x, *(w if w.weight_hr is not None else w[:3])])


def _check_lengths(lengths: Tensor, x: Tensor) -> None:
    batch, time, _ = x.shape
    _checks.check_shapes("projected_lstm", ("lengths", lengths, "B"), B=batch)
    _checks.check_dtype("projected_lstm", "lengths", lengths, torch.int64)
    _checks.check_device("projected_lstm", "lengths and inputs", lengths, x)
    _checks.check_values("projected_lstm", "lengths", lengths, time, "lie in 0..T={}")


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


def _shapes(a: Any) -> dict[str, Any]:
    """Return the shapes of gradients, one tensor for all directions because an op's results may not overlap."""
    directions, (batch, _, width) = len(a.inputs), a.inputs[0].shape
    gates, size = a.weight_hh[0].shape
    return {
        "weight_ih": (directions, gates, width), "weight_hh": (directions, gates, size), "bias": (directions, gates),
        "weight_hr": (directions, size, gates // 4) if a.weight_hr else (0,),
        "h0": (directions, batch, size), "c0": (directions, batch, gates // 4),
    }  # fmt: skip


_COVERS = {"need_weights": ["weight_ih", "weight_hh", "bias", "weight_hr"], "need_h0": ["h0", "c0"]}
describe("projected_lstm", _fake, Backward(_COVERS, _shapes), _native_saved)
register("projected_lstm", "native", "triton", kernels="elmo_fast.ops.projected_lstm.backward_kernels", int8=True)
