"""The projected LSTM backwards: the two kernels of a step, hidden state and cells, and their launches.

Rows are in step order (docs/gpu.md).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import after_previous, plus_product, scale_of, tanh
from elmo_fast.ops._triton import cdiv, input_precision, launch
from elmo_fast.ops.projected_lstm.triton_forward import (
    Layer,
    Steps,
    approximate,
    clipped,
    launch_arrange,
    layer_of,
    leave_part,
    packed_layer,
    put_back,
    sorted_rows,
    sum_of_parts,
    tiles,
)


@triton.jit
def as_operand(x, dtype: tl.constexpr):
    """Convert x to the operands' dtype; larger numbers become float16's largest (infinity times 0 would be NaN)."""
    if dtype == tl.float16:
        x = clipped(x, 65504.0)
    return x.to(dtype)


@triton.jit
def passed(gradient, x, bound):
    """Return the gradient of clipped(x): 0 beyond the bound and (as torch.clamp's) at NaN; all if there is no bound."""
    if bound is None:
        found = gradient
    else:
        found = tl.where(tl.abs(x) <= bound, gradient, 0.0)
    return found


@triton.jit
def exact_gate(x, dtype: tl.constexpr):
    """Compute σ(x), for 16-bit operands without a division; exactly 0 or 1 far from 0, where the slope must be 0.

    With tanh.approx, which errs by 2^-11 anywhere, the slope of a saturated gate would be nothing but its error.
    """
    if dtype == tl.float32:
        return tl.sigmoid(x)
    e = approximate(tl.abs(x) * -1.4426950408889634, "ex2")
    small = e * approximate(1.0 + e, "rcp")
    return tl.where(x < 0, small, 1.0 - small)


@triton.jit
def exact_tanh(x, dtype: tl.constexpr):
    """Compute tanh(x), like `exact_gate`; for 16-bit operands without float32's digits near 0."""
    if dtype == tl.float32:
        return tanh(x)
    e = approximate(tl.abs(x) * -2.8853900817779268, "ex2")
    far = tl.fma(e * approximate(1.0 + e, "rcp"), -2.0, 1.0)
    return tl.where(x < 0, -far, far)


@triton.jit
def finish_recurrence(
    acc, row, column, d_h, d_y, masks, out, d_out, lengths, step, batch, size, bound,
    PRODUCT: tl.constexpr,
):  # fmt: skip
    """Finish some rows of d_h, and compute the gradient before the clip of step - 1.

    d_y, out and d_out are its addresses.
    """
    length = tl.load(lengths + row, mask=row < batch, other=0)
    active = (row < batch) & (length > step)
    within = (row < batch)[:, None] & (column < size)[None, :]
    at = row[:, None] * size + column[None, :]
    if PRODUCT:
        tl.store(d_h + at, acc, mask=active[:, None] & within)
    if step > 0:
        before = (row < batch) & (length > step - 1)
        inside = before[:, None] & (column < size)[None, :]
        held = tl.load(d_h + at, mask=inside & (active == 0)[:, None], other=0.0)
        value = tl.where(active[:, None], acc, held)
        value += tl.load(d_y + at, mask=inside, other=0.0)
        if masks is not None:
            value *= tl.load(masks + at, mask=within, other=0.0)
        value = passed(value, tl.load(out + at, mask=inside, other=0.0), bound)
        value = tl.where(before[:, None], value, 0.0)
        tl.store(d_out + at, as_operand(value, d_out.dtype.element_ty), mask=within)


@triton.jit(do_not_specialize=["step"])
def recur_backward(
    d_gates, weight, d_h, d_y, masks, out, d_out, lengths, parts, arrived, step, batch, time, size, count, chunk,
    bound,
    PRODUCT: tl.constexpr, SPLIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute d_h = d_gates at `step` · W_hh for rows with such a step; then the gradient before step - 1's clip.

    d_gates [R, T, B, 4H]; weight [R, 4H, D]; d_h [R, B, D] float32; d_y, out [R, T, B, D]: the outputs' gradient, and
    the projections before their clip; d_out [R, T, B, D] operands, written at step - 1 (0 for rows without that step).
    PRODUCT=False for step = T, which no row has; step = 0 only writes d_h. parts and arrived: see `project`. Floor:
    that of `cells`' product.
    """
    after_previous()
    direction, part = (tl.program_id(2) // SPLIT).to(tl.int64), tl.program_id(2) % SPLIT
    top = tl.program_id(1) * BM
    row = top + tl.arange(0, BM)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    length = tl.load(lengths + row, mask=row < batch, other=0)
    longest = tl.max(length)
    d_h += direction * batch * size
    offset = (direction * time + step - 1) * batch * size
    d_y += offset
    out += offset
    d_out += offset
    if masks is not None:
        masks += direction * batch * size
    parts += direction * SPLIT * batch * size
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    first, last = part, part + 1
    if PRODUCT:  # noqa: SIM102 (one is known when compiling, the other is not)
        if longest > step:
            operands = d_gates + ((direction * time + step) * batch + row)[:, None] * 4 * count
            columns = weight + direction * 4 * count * size + column[None, :]
            begin = part * chunk
            end = tl.minimum(4 * count, begin + chunk)
            for start in range(begin, end, BK):
                k = start + tl.arange(0, BK)
                a = tl.load(operands + k[None, :], mask=(length > step)[:, None] & (k < end)[None, :], other=0.0)
                inside = (k < end)[:, None] & (column < size)[None, :]
                b = tl.load(columns + k.to(tl.int64)[:, None] * size, mask=inside, other=0.0)
                acc = plus_product(acc, a, b, PRECISION)
            if SPLIT > 1:
                tile = (direction * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
                at = row[:, None] * size + column[None, :]
                within = (row < batch)[:, None] & (column < size)[None, :]
                first, last = leave_part(acc, parts, arrived + tile, part, at, within, batch * size, SPLIT)
    if SPLIT == 1:
        finish_recurrence(
            acc, row, column, d_h, d_y, masks, out, d_out, lengths, step, batch, size, bound, PRODUCT
        )  # fmt: skip
    else:
        share_rows: tl.constexpr = BM // SPLIT
        for share in range(first, last):
            own = top + share * share_rows + tl.arange(0, share_rows)
            total = tl.zeros((share_rows, BN), dtype=tl.float32)
            if PRODUCT:
                active = (own < batch) & (tl.load(lengths + own, mask=own < batch, other=0) > step)
                there, here = own[:, None] * size + column[None, :], active[:, None] & (column < size)[None, :]
                total = sum_of_parts(parts, there, here, batch * size, SPLIT)
            finish_recurrence(
                total, own, column, d_h, d_y, masks, out, d_out, lengths, step, batch, size, bound, PRODUCT
            )  # fmt: skip


@triton.jit(do_not_specialize=["step"])
def cells_backward(
    d_out, weight, gates, c, d_c, d_gates, hidden, lengths, step, batch, time, size, count, bound,
    PROJECT: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Run step `step` backwards: d_out · W_hr, then through o·tanh(c), the clip of c and the gates.

    d_out [R, T, B, D]; weight [R, D, H]; gates [R, T, B, 4H] pre-activations; c [R, T+1, B, H] before its clip; d_c [R,
    B, H] of c after its clip, in place; d_gates as gates; hidden [R, T, B, H] = o·tanh(c), computed again for W_hr's
    gradient. Rows without this step get 0 in d_gates and hidden: the large products read them.
    """
    after_previous()
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    cell = tl.program_id(0) * BC + tl.arange(0, BC)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    within = (row < batch)[:, None] & (cell < count)[None, :]
    at = row[:, None] * count + cell[None, :]
    now = (direction * time + step) * batch
    hidden += now * count + at
    d_gates += (now + row)[:, None] * 4 * count + cell[None, :]
    if tl.max(active.to(tl.int32)) == 0:
        nothing = tl.zeros((BM, BC), dtype=d_gates.dtype.element_ty)
        tl.store(d_gates, nothing, mask=within)
        tl.store(d_gates + count, nothing, mask=within)
        tl.store(d_gates + 2 * count, nothing, mask=within)
        tl.store(d_gates + 3 * count, nothing, mask=within)
        if PROJECT:
            tl.store(hidden, nothing, mask=within)
        return
    inside = active[:, None] & (cell < count)[None, :]
    if PROJECT:
        d_hidden = tl.zeros((BM, BC), dtype=tl.float32)
        d_out += (now + row)[:, None] * size
        weight += direction * size * count + cell[None, :]
        for start in range(0, size, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(d_out + k[None, :], mask=active[:, None] & (k < size)[None, :], other=0.0)
            b = tl.load(weight + k[:, None] * count, mask=(k < size)[:, None] & (cell < count)[None, :], other=0.0)
            d_hidden = plus_product(d_hidden, a, b, PRECISION)
    else:
        d_hidden = tl.load(d_out + now * count + at, mask=inside, other=0.0).to(tl.float32)

    gates += (now + row)[:, None] * 4 * count + cell[None, :]
    dtype: tl.constexpr = d_gates.dtype.element_ty
    o = exact_gate(tl.load(gates + 3 * count, mask=inside, other=0.0).to(tl.float32), dtype)
    after = tl.load(c + (direction * (time + 1) + step + 1) * batch * count + at, mask=inside, other=0.0)
    t = exact_tanh(clipped(after, bound), dtype)
    if PROJECT:
        tl.store(hidden, (o * t).to(hidden.dtype.element_ty), mask=within)
    tl.store(d_gates + 3 * count, as_operand(d_hidden * t * o * (1.0 - o), dtype), mask=within)
    d_cell = tl.load(d_c + direction * batch * count + at, mask=inside, other=0.0) + d_hidden * o * (1.0 - t * t)
    d_cell = passed(d_cell, after, bound)
    f = exact_gate(tl.load(gates + count, mask=inside, other=0.0).to(tl.float32), dtype)
    tl.store(d_c + direction * batch * count + at, d_cell * f, mask=inside)
    before = tl.load(c + (direction * (time + 1) + step) * batch * count + at, mask=inside, other=0.0)
    before = tl.where(step == 0, before, clipped(before, bound))
    tl.store(d_gates + count, as_operand(d_cell * before * f * (1.0 - f), dtype), mask=within)
    i = exact_gate(tl.load(gates, mask=inside, other=0.0).to(tl.float32), dtype)
    g = exact_tanh(tl.load(gates + 2 * count, mask=inside, other=0.0).to(tl.float32), dtype)
    tl.store(d_gates, as_operand(d_cell * g * i * (1.0 - i), dtype), mask=within)
    tl.store(d_gates + 2 * count, as_operand(d_cell * i * (1.0 - g * g), dtype), mask=within)


class Gradients(NamedTuple):
    """Gradients in step order, times the scale.

    They are the gradients of the outputs, of the projections before their clip and of the pre-activations; hidden is
    o·tanh(c), computed again; h and c are the state's gradient, at the end that of the state before the first step.
    arrived: counters of the blocks that sum the products of `recur_backward`.
    """

    outputs: Tensor
    projections: Tensor
    gates: Tensor
    hidden: Tensor
    h: Tensor
    c: Tensor
    arrived: Tensor


def allocate(layer: Layer, like: Tensor, project: bool) -> Gradients:
    """Allocate memory for a backward pass. Raises ElmoFastError if the device has too little."""
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
    """Yield zeros of three shapes from one launch: float32, float32, int32. Each address is a multiple of 128."""
    shapes = state, cells, counters
    sizes = [cdiv(math.prod(shape), 32) * 32 for shape in shapes]
    parts = like.new_zeros(sum(sizes)).split(sizes)
    for part, shape, dtype in zip(parts, shapes, (torch.float32, torch.float32, torch.int32), strict=True):
        yield part[: math.prod(shape)].view(shape).view(dtype)


def scan(
    layer: Layer, steps: Steps, weights: list[Tensor], masks: Tensor | None, lengths: Tensor, grads: Gradients
) -> None:
    """Run all steps from the last, two launches each. weights: W_hh, and W_hr or nothing."""
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
            recur_backward, grid,
            grads.gates, weight_hh, grads.h, grads.outputs, masks, steps.projections, grads.projections, lengths,
            parts, grads.arrived, step, b, t, d, h, chunk, bounds[1],
            PRODUCT=step < t, SPLIT=split,
            BM=part.rows, BN=part.columns, BK=part.depth, PRECISION=precision, launch_pdl=True, **part.options,
        )  # fmt: skip
        if step > 0:
            launch(
                cells_backward, (cdiv(h, tile.columns), cdiv(b, tile.rows), r),
                grads.projections, projection[0] if projection else None, steps.gates, steps.cells,
                grads.c, grads.gates, grads.hidden, lengths, step - 1, b, t, d, h, bounds[0],
                PROJECT=bool(projection),
                BM=tile.rows, BC=tile.columns, BK=tile.depth, PRECISION=precision, launch_pdl=True, **tile.options,
            )  # fmt: skip


def unscaled(gradient: Tensor, scale: Tensor | None) -> Tensor:
    """Divide by the scale, in place; this is exact because the scale is a power of two."""
    return gradient if scale is None else gradient.mul_(scale.select(0, 1))


def of_weights(layer: Layer, steps: Steps, grads: Gradients, scale: Tensor | None) -> list[Tensor]:
    """Compute the gradients of W_ih, W_hh, bias and W_hr, directions concatenated: one product over all steps."""
    gates = grads.gates.flatten(1, 2).transpose(1, 2)
    gradients = [
        _triton.matmul(gates, steps.inputs.flatten(1, 2), torch.float32),
        _triton.matmul(gates, steps.hidden.narrow(1, 0, layer.time).flatten(1, 2), torch.float32),
        grads.gates.sum((1, 2), dtype=torch.float32),
    ]
    if grads.hidden.numel():
        projections = grads.projections.flatten(1, 2).transpose(1, 2)
        gradients.append(_triton.matmul(projections, grads.hidden.flatten(1, 2), torch.float32))
    if scale is not None:
        torch._foreach_mul_(gradients, scale.select(0, 1))
    return gradients


def of_inputs(
    layer: Layer, grads: Gradients, weight_ih: Tensor, a: Any, order: Tensor | None, scale: Tensor | None
) -> list[Tensor]:
    """Compute the gradients of the inputs, R tensors [B, T, I]; a residual adds the outputs' own gradient."""
    gradients = []
    parts = zip(grads.gates.flatten(1, 2).unbind(0), weight_ih.unbind(0), a.d_outputs.unbind(0), strict=True)
    for i, (gates, weight, d_y) in enumerate(parts):
        product = _triton.matmul(gates, weight, torch.float32)
        out = product.new_empty(layer.batch, layer.time, layer.width)
        launch(
            put_back, (layer.time * layer.batch,), product, d_y, order, a.falling, None, scale, out,
            layer.batch, layer.time, layer.width, *d_y.stride(), float("inf"), REVERSE=layer.reverse[i],
            RESIDUAL=layer.residual,
            BLOCK=_triton.ceil_power_of_two(layer.width, 16, 1024),
        )  # fmt: skip
        gradients.append(out)
    return gradients


def backward(a: Any) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Compute the gradients of inputs, weights, h0 and c0 (empty if not needed) from the op's arguments."""
    layer, steps = layer_of(a), Steps(a.step_inputs, a.gates, a.cells, a.projections, a.hidden)
    nonempty = [d for d in (a.d_outputs, a.d_h, a.d_c) if d is not None and d.numel()]
    # float16 reaches 65504 times above and 6e-8 below 1: gradients may grow or shrink by as much going back in time.
    scale = scale_of(nonempty) if nonempty and layer.dtype == torch.float16 else None
    grads = allocate(layer, a.d_outputs, bool(a.weight_hr))
    order = a.order if a.order.numel() else None
    for i, (d_y, into) in enumerate(zip(a.d_outputs.unbind(0), grads.outputs.unbind(0), strict=True)):
        launch_arrange(d_y, layer, i, order, a.falling, into, scale)
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
