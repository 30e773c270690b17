"""Allocates and starts the kernels of a layer backwards; shapes and step order as in docs/gpu.md."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import scale_of
from elmo_fast.ops._triton import cdiv, input_precision, launch
from elmo_fast.ops.projected_lstm import kernels_backward, kernels_order
from elmo_fast.ops.projected_lstm.host import Steps, arrange, packed_layer, sorted_rows
from elmo_fast.ops.projected_lstm.layer import Layer, layer_of
from elmo_fast.ops.projected_lstm.tiling import tiles


class Gradients(NamedTuple):
    """In step order, times the scale: of the outputs, of the projections before their clip, of the pre-activations;
    o·tanh(c), made again; and of the state, which ends as that of the state before the first step. arrived: counters
    of the blocks that sum the products of `recur_backward`."""

    outputs: Tensor
    projections: Tensor
    gates: Tensor
    hidden: Tensor
    h: Tensor
    c: Tensor
    arrived: Tensor


def allocate(layer: Layer, like: Tensor, project: bool) -> Gradients:
    """Memory for a pass backwards. Raises ElmoFastError when the device has not enough."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    item = layer.dtype.itemsize
    per_row = r * (t * (4 * d + item * d + 5 * item * h) + 4 * (d + h))
    part, _ = tiles(layer, "recur", like.device)
    with _triton.explained("projected_lstm, backward", "rows of the batch", b * per_row, per_row, b, like.device):
        return Gradients(
            like.new_empty(r, t, b, d),
            like.new_empty(r, t, b, d, dtype=layer.dtype if project else like.dtype),
            like.new_empty(r, t, b, 4 * h, dtype=layer.dtype),
            like.new_empty((r, t, b, h) if project else 0, dtype=layer.dtype),
            *_zeros(like, (r, b, d), (r, b, h), (r, cdiv(d, part.columns), cdiv(b, part.rows))),
        )


def _zeros(like: Tensor, state: Sequence[int], cells: Sequence[int], counters: Sequence[int]) -> Iterator[Tensor]:
    """Zeros of three shapes in one launch: float32, float32, int32. Each begins at an address that 128 divides."""
    shapes = state, cells, counters
    sizes = [cdiv(math.prod(shape), 32) * 32 for shape in shapes]
    parts = like.new_zeros(sum(sizes)).split(sizes)
    for part, shape, dtype in zip(parts, shapes, (torch.float32, torch.float32, torch.int32), strict=True):
        yield part[: math.prod(shape)].view(shape).view(dtype)


def scan(
    layer: Layer, steps: Steps, weights: list[Tensor], masks: Tensor | None, lengths: Tensor, grads: Gradients
) -> None:
    """All steps from the last, two launches each. weights: W_hh, and W_hr or nothing."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    weight_hh, *projection = weights
    device = lengths.device
    (tile, _), (part, split) = tiles(layer, "cells_backward", device), tiles(layer, "recur", device)
    precision = input_precision(layer.dtype, device)
    chunk = cdiv(cdiv(4 * h, split), part.depth) * part.depth
    grid = (cdiv(d, part.columns), cdiv(b, part.rows), r * split)
    parts = grads.h.new_empty(r * split, b, d)
    bounds = [None if math.isinf(clip) else clip for clip in (layer.cell_clip, layer.projection_clip)]
    for step in range(t, -1, -1):
        launch(
            kernels_backward.recur_backward, grid,
            grads.gates, weight_hh, grads.h, grads.outputs, masks, steps.projections, grads.projections, lengths,
            parts, grads.arrived, step, b, t, d, h, chunk, bounds[1],
            PRODUCT=step < t, MASKED=masks is not None, SPLIT=split,
            BM=part.rows, BN=part.columns, BK=part.depth, PRECISION=precision, launch_pdl=True, **part.options,
        )  # fmt: skip
        if step > 0:
            launch(
                kernels_backward.cells_backward, (cdiv(h, tile.columns), cdiv(b, tile.rows), r),
                grads.projections, projection[0] if projection else None, steps.gates, steps.cells,
                grads.c, grads.gates, grads.hidden, lengths, step - 1, b, t, d, h, bounds[0],
                PROJECT=bool(projection),
                BM=tile.rows, BC=tile.columns, BK=tile.depth, PRECISION=precision, launch_pdl=True, **tile.options,
            )  # fmt: skip


def unscaled(gradient: Tensor, scale: Tensor | None) -> Tensor:
    """Divides by the scale, in place; exact, as it is a power of two."""
    return gradient if scale is None else gradient.mul_(scale.select(0, 1))


def of_weights(layer: Layer, steps: Steps, grads: Gradients, scale: Tensor | None) -> list[Tensor]:
    """Gradients of W_ih, W_hh, bias and W_hr, the directions' one after the other: one product over all steps."""
    gates = grads.gates.flatten(1, 2).transpose(1, 2)
    found = [
        _triton.matmul(gates, steps.inputs.flatten(1, 2), torch.float32),
        _triton.matmul(gates, steps.hidden.narrow(1, 0, layer.time).flatten(1, 2), torch.float32),
        grads.gates.sum((1, 2), dtype=torch.float32),
    ]
    if grads.hidden.numel():
        projections = grads.projections.flatten(1, 2).transpose(1, 2)
        found.append(_triton.matmul(projections, grads.hidden.flatten(1, 2), torch.float32))
    if scale is not None:
        torch._foreach_mul_(found, scale.select(0, 1))
    return found


def of_inputs(
    layer: Layer, grads: Gradients, weight_ih: Tensor, a: Any, order: Tensor | None, scale: Tensor | None
) -> list[Tensor]:
    """Gradients of the inputs, R tensors [B, T, I]; with a residual the outputs' own gradient is added."""
    found = []
    parts = zip(grads.gates.flatten(1, 2).unbind(0), weight_ih.unbind(0), a.d_outputs.unbind(0), strict=True)
    for i, (gates, weight, d_y) in enumerate(parts):
        product = _triton.matmul(gates, weight, torch.float32)
        out = product.new_empty(layer.batch, layer.time, layer.width)
        launch(
            kernels_order.put_back, (layer.time * layer.batch,), product, d_y, order, a.falling, None, scale, out,
            layer.batch, layer.time, layer.width, *d_y.stride(), float("inf"), REVERSE=layer.reverse[i],
            MASKED=False, RESIDUAL=layer.residual, SCALED=scale is not None,
            BLOCK=_triton.ceil_power_of_two(layer.width, 16, 1024),
        )  # fmt: skip
        found.append(out)
    return found


def backward(a: Any) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Gradients of inputs, of weights, of h0 and of c0 (none where not needed), for the op's arguments."""
    layer, steps = layer_of(a), Steps(a.step_inputs, a.gates, a.cells, a.projections, a.hidden)
    given = [d for d in (a.d_outputs, a.d_h, a.d_c) if d is not None and d.numel()]
    # 65504 above and 6e-8 below 1: gradients may grow by as much on their way back in time, or fall, unharmed.
    scale = scale_of(given) if given and layer.dtype == torch.float16 else None
    grads = allocate(layer, a.d_outputs, bool(a.weight_hr))
    order = a.order if a.order.numel() else None
    for i, (d_y, into) in enumerate(zip(a.d_outputs.unbind(0), grads.outputs.unbind(0), strict=True)):
        arrange(d_y, layer, i, order, a.falling, into, scale)
    for d_state, into in ((a.d_h, grads.h), (a.d_c, grads.c)):
        if d_state is not None:
            into.copy_(sorted_rows(d_state, order))
            if scale is not None:
                into.mul_(scale.select(0, 0))
    weight_ih, *others = packed_layer(a, layer.dtype)
    masks = sorted_rows(torch.stack(a.masks), order) if a.masks else None
    scan(layer, steps, others, masks, a.falling, grads)
    d_weights = of_weights(layer, steps, grads, scale) if a.need_weights else []
    d_inputs = of_inputs(layer, grads, weight_ih, a, order, scale) if a.need_inputs else []
    if not a.need_h0:
        return d_inputs, d_weights, grads.h.new_empty(0), grads.c.new_empty(0)
    if order is None:
        d_h0, d_c0 = grads.h.clone(), grads.c.clone()  # an op's results may not share memory
    else:
        d_h0, d_c0 = (each.index_select(1, torch.argsort(order)) for each in (grads.h, grads.c))
    return d_inputs, d_weights, unscaled(d_h0, scale), unscaled(d_c0, scale)
