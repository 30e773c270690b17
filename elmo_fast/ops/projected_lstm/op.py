"""The projected LSTM with cell and projection clip: one layer, one or two directions side by side."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _checks
from elmo_fast.ops._autograd import requires_grad
from elmo_fast.ops._dispatch import select
from elmo_fast.ops._precision import check_no_gradient, under_autocast


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


class ProjectedLSTMArguments(NamedTuple):
    """Checked arguments of `projected_lstm`, as backends receive them."""

    inputs: list[Tensor]
    weights: list[LSTMWeights]
    lengths: Tensor | None
    state: tuple[Tensor, Tensor] | None
    reverse: list[bool]
    cell_clip: float | None
    projection_clip: float | None
    residual: bool
    recurrent_masks: list[Tensor] | None
    precision: str

    def of_op(self, lengths: Tensor | None, masks: list[Tensor]) -> tuple[Any, ...]:
        """Return the registered ops' arguments: weights by kind, infinity for no clip, whether to save for backward."""
        weight_ih, weight_hh, bias, weight_hr = map(list, zip(*self.weights, strict=True))
        projections = [weight for weight in weight_hr if weight is not None]
        h0, c0 = (None, None) if self.state is None else self.state
        return (
            self.inputs, weight_ih, weight_hh, bias, projections, lengths, h0, c0, masks, self.reverse,
            math.inf if self.cell_clip is None else self.cell_clip,
            math.inf if self.projection_clip is None or not projections else self.projection_clip,
            self.residual, self.precision,
            self.needs_backward(),
        )  # fmt: skip

    def needs_backward(self) -> bool:
        """Return whether autograd needs a gradient."""
        return requires_grad(*self.inputs, *itertools.chain(*self.weights), *(self.state or ()))


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
    state = None if state is None else (cast(state[0]), cast(state[1]))
    batch, time, _ = inputs[0].shape
    for x, w in zip(inputs, weights, strict=True):
        _check_direction(x, w, batch, time, residual)
    for name, clip in (("cell_clip", cell_clip), ("projection_clip", projection_clip)):
        if clip is not None and not clip > 0:
            raise ElmoFastError(f"projected_lstm: {name} must be a number > 0, or None for no clip; got {clip!r}")
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
    a = ProjectedLSTMArguments(
        list(inputs), list(weights), lengths, state, list(reverse), cell_clip, projection_clip, residual,
        None if recurrent_masks is None else list(recurrent_masks), precision,
    )  # fmt: skip
    if precision == "int8":
        check_no_gradient(a.needs_backward())
    run = select("projected_lstm", backend, inputs[0].device, inputs[0].dtype, precision).run
    with no_autocast:
        outputs, h, c = run(a)
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
