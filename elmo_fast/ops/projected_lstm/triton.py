"""The projected LSTM in Triton: per step one kernel for cells and one for the projection, all directions at once."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _graphs, _triton

if TYPE_CHECKING:
    from elmo_fast.ops.projected_lstm.op import LSTMWeights

if _triton.WHY_NOT is None:
    from elmo_fast.ops.projected_lstm import graphed, host, host_backward, host_persistent

unsupported = _triton.unsupported


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
    op: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As elmo_fast.ops.projected_lstm; op: what `define` made, when not this backend's own."""
    needed = [*inputs, *(p for w in weights for p in w if p is not None), *(state or ())]
    outputs, h, c, *_ = (op or _forward_op)(
        inputs,
        [w.weight_ih for w in weights],
        [w.weight_hh for w in weights],
        [w.bias for w in weights],
        [w.weight_hr for w in weights if w.weight_hr is not None],
        lengths,
        None if state is None else state[0],
        None if state is None else state[1],
        recurrent_masks or [],
        list(reverse),
        math.inf if cell_clip is None else cell_clip,
        math.inf if projection_clip is None or weights[0].weight_hr is None else projection_clip,
        residual,
        precision,
        torch.is_grad_enabled() and any(t.requires_grad for t in needed),
    )
    return outputs, h, c


def _layer(inputs: list[Tensor], weight_hh: list[Tensor], options: Sequence[Any]) -> "host.Layer":
    reverse, cell_clip, projection_clip, residual, precision = options
    batch, time, width = inputs[0].shape
    cells, size = weight_hh[0].shape[0] // 4, weight_hh[0].shape[1]
    dtype = _triton.operand_dtype(precision)
    if batch * 4 * cells >= 2**31:
        most = (2**31 - 1) // (4 * cells)
        raise ElmoFastError(
            f"projected_lstm: a step of B={batch} rows and H={cells} cells is too large; give B <= {most}"
        )
    return host.Layer(
        len(inputs), batch, time, width, size, cells, tuple(reverse), cell_clip, projection_clip, residual, dtype
    )


def _lists(*weights: list[Tensor]) -> list[list[Tensor]]:
    """The lists of parameters, less W_hr's where nothing is projected."""
    return [each for each in weights if each]


def _forward(
    choose: "Callable[[host.Layer, torch.device, bool], host.Scan]",
    inputs: list[Tensor], weight_ih: list[Tensor], weight_hh: list[Tensor], bias: list[Tensor], weight_hr: list[Tensor],
    lengths: Tensor | None, h0: Tensor | None, c0: Tensor | None, masks: list[Tensor], *options: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer, save = _layer(inputs, weight_hh, options[:-1]), options[-1]
    lists = _lists(weight_ih, weight_hh, bias, weight_hr)
    scan = choose(layer, inputs[0].device, bool(weight_hr))
    if not save and not masks and layer.batch and layer.time and _graphs.enabled(inputs[0].device):
        replayed = graphed.forward(layer, inputs, lists, lengths, (h0, c0), scan)
        if replayed is not None:
            return (*replayed, *_nothing(layer, inputs[0]))
    results, steps, order, falling = host.forward(layer, inputs, lists, lengths, (h0, c0), masks, save, scan)
    return (*results, *steps, order, falling) if save else (*results, *_nothing(layer, inputs[0]))


def _nothing(layer: "host.Layer", like: Tensor) -> list[Tensor]:
    """What a pass returns in place of what it would have saved."""
    wide = host.pre_activation_dtype(layer)
    dtypes = (layer.dtype, wide, torch.float32, torch.float32, layer.dtype, host.LENGTHS, host.LENGTHS)
    return [like.new_empty(0, dtype=dtype) for dtype in dtypes]


def _fake(
    inputs: list[Tensor], weight_ih: list[Tensor], weight_hh: list[Tensor], bias: list[Tensor], weight_hr: list[Tensor],
    lengths: Tensor | None, h0: Tensor | None, c0: Tensor | None, masks: list[Tensor], *options: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    layer, new = _layer(inputs, weight_hh, options[:-1]), inputs[0].new_empty
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    if not options[-1]:
        return (new(r, b, t, d), new(r, b, d), new(r, b, h), *_nothing(layer, inputs[0]))
    wide = host.pre_activation_dtype(layer)
    shapes = ((r, t, b, layer.width), (r, t, b, 4 * h), (r, t + 1, b, h), (r, t, b, d), (r, t + 1, b, d))
    dtypes = (layer.dtype, wide, torch.float32, torch.float32, layer.dtype)
    steps = [new(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    order = [new(b, dtype=host.LENGTHS) for _ in range(2)]
    return (new(r, b, t, d), new(r, b, d), new(r, b, h), *steps, *order)


def _backward(
    d_outputs: Tensor, d_h: Tensor | None, d_c: Tensor | None, inputs: list[Tensor], weight_ih: list[Tensor],
    weight_hh: list[Tensor], weight_hr: list[Tensor], masks: list[Tensor], steps: list[Tensor], order: Tensor,
    lengths: Tensor, *options: Any,
) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    *rest, need_inputs, need_weights = options
    d_inputs, d_weights, d_h0, d_c0 = host_backward.backward(
        _layer(inputs, weight_hh, rest), d_outputs, (d_h, d_c), _lists(weight_ih, weight_hh, weight_hr), masks,
        host.Steps(*steps), order, lengths, need_inputs, need_weights,
    )  # fmt: skip
    d_weights += [d_outputs.new_empty(0) for _ in range(4 - len(d_weights))]
    return d_inputs, d_weights[0], d_weights[1], d_weights[2], d_weights[3], d_h0, d_c0


def _fake_backward(
    d_outputs: Tensor, d_h: Tensor | None, d_c: Tensor | None, inputs: list[Tensor], weight_ih: list[Tensor],
    weight_hh: list[Tensor], weight_hr: list[Tensor], masks: list[Tensor], steps: list[Tensor], order: Tensor,
    lengths: Tensor, *options: Any,
) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    layer, new = _layer(inputs, weight_hh, options[:-2]), inputs[0].new_empty
    r, b = layer.directions, layer.batch
    gates = 4 * layer.cells
    shapes = [(r, gates, layer.width), (r, gates, layer.size), (r, gates)]
    shapes.append((r, layer.size, layer.cells) if weight_hr else (0,))
    of_weights = [new(shape if options[-1] else (0,)) for shape in shapes]
    of_inputs = [new(x.shape) for x in inputs] if options[-2] else []
    return of_inputs, *of_weights, new(r, b, layer.size), new(r, b, layer.cells)  # type: ignore[return-value]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    xs, weight_ih, weight_hh, _, weight_hr, _, h0, _, masks, *options = inputs
    ctx.set_materialize_grads(False)
    ctx.lists = [len(each) for each in (xs, weight_ih, weight_hh, weight_hr, masks)]
    ctx.options, ctx.state_given, ctx.shape = options[:-1], h0 is not None, output[0].shape
    ctx.save_for_backward(*xs, *weight_ih, *weight_hh, *weight_hr, *masks, *output[3:])


def _differentiate(
    ctx: Any, d_outputs: Tensor | None, d_h: Tensor | None, d_c: Tensor | None, *_: Tensor | None
) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    xs, weight_ih, weight_hh, weight_hr, masks = ([next(saved) for _ in range(count)] for count in ctx.lists)
    *steps, order, lengths = saved
    if d_outputs is None:
        d_outputs = xs[0].new_zeros(ctx.shape)
    need_inputs = any(ctx.needs_input_grad[0])
    need_weights = any(any(needed) for needed in ctx.needs_input_grad[1:5])
    d_inputs, *d_weights, d_h0, d_c0 = _backward_op(
        d_outputs, d_h, d_c, xs, weight_ih, weight_hh, weight_hr, masks, steps, order, lengths, *ctx.options,
        need_inputs, need_weights,
    )  # fmt: skip
    counts = [len(xs)] * 4 + [len(weight_hr)]
    found = [d_inputs, *(each.unbind(0) for each in d_weights)]  # one tensor of each: an op's results may not overlap
    lists = [list(given) or [None] * count for given, count in zip(found, counts, strict=True)]
    state = (d_h0, d_c0) if ctx.state_given else (None, None)
    return (*lists, None, *state, [None] * len(masks), *[None] * (len(ctx.options) + 1))


if _triton.WHY_NOT is None:
    _OPTIONS = "bool[] reverse, float cell_clip, float projection_clip, bool residual, str precision"
    _backward_op = _triton.define(
        "projected_lstm_backward(Tensor d_outputs, Tensor? d_h, Tensor? d_c, Tensor[] inputs, Tensor[] weight_ih, "
        "Tensor[] weight_hh, Tensor[] weight_hr, Tensor[] masks, Tensor[] steps, Tensor order, Tensor lengths, "
        f"{_OPTIONS}, bool need_inputs, bool need_weights) -> "
        "(Tensor[] inputs, Tensor weight_ih, Tensor weight_hh, Tensor bias, Tensor weight_hr, Tensor h0, Tensor c0)",
        _backward,
        _fake_backward,
    )
    _SCHEMA = (
        "(Tensor[] inputs, Tensor[] weight_ih, Tensor[] weight_hh, Tensor[] bias, Tensor[] weight_hr, "
        f"Tensor? lengths, Tensor? h0, Tensor? c0, Tensor[] masks, {_OPTIONS}, bool save) -> "
        "(Tensor outputs, Tensor h, Tensor c, Tensor inputs, Tensor gates, Tensor cells, Tensor projections, "
        "Tensor hidden, Tensor order, Tensor steps)"
    )

    def define(name: str, choose: "Callable[[host.Layer, torch.device, bool], host.Scan]") -> Any:
        """The op `name` that runs a layer with the scan forwards that `choose` returns."""
        return _triton.define(name + _SCHEMA, functools.partial(_forward, choose), _fake, _setup, _differentiate)

    _forward_op = define("projected_lstm", host_persistent.chosen)
