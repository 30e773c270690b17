"""The projected LSTM backwards: the kernels of a step, hidden state and cells, and their launches.

Rows are in step order (docs/gpu.md).
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import after_previous, plus_product, tanh
from elmo_fast.ops._triton import cdiv, implement, input_precision, launch
from elmo_fast.ops.projected_lstm.forward_kernels import (
    Layer,
    SplitProduct,
    Steps,
    approximate,
    clipped,
    halves,
    is_fused,
    launch_from_step_order,
    launch_to_step_order,
    layer_of,
    sorted_rows,
    sum_of_parts,
    tiles,
)


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


@triton.jit(do_not_specialize=["step"])
def projected_lstm_backward_finish_recurrence_kernel(
    parts, d_h, d_y, masks, out, d_out, lengths, step, batch, time, size, bound,
    PRODUCT: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add the parts of d_h = d_gates at `step` · W_hh; then compute the gradient before step - 1's clip.

    d_h [R, B, D] float32, written for rows with step `step`; d_y, out [R, T, B, D]: the outputs' gradient, and the
    projections before their clip; d_out [R, T, B, D] operands, written at step - 1 (0 for rows without that step).
    PRODUCT=False for step = T, which no row has; step = 0 only writes d_h.
    """
    after_previous()
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    length = tl.load(lengths + row, mask=row < batch, other=0)
    active = (row < batch) & (length > step)
    within = (row < batch)[:, None] & (column < size)[None, :]
    at = row[:, None] * size + column[None, :]
    d_h += direction * batch * size
    value = tl.zeros((BM, BN), dtype=tl.float32)
    if PRODUCT:
        inside = active[:, None] & within
        value = sum_of_parts(parts + direction * SPLIT * batch * size, at, inside, batch * size, SPLIT)
        tl.store(d_h + at, value, mask=inside)
    if step > 0:
        offset = (direction * time + step - 1) * batch * size + at
        before = (row < batch) & (length > step - 1)
        inside = before[:, None] & within
        # A row that ends at step - 1 has no product yet: it starts from the final state's gradient, which d_h holds.
        held = tl.load(d_h + at, mask=inside & (active == 0)[:, None], other=0.0)
        value = tl.where(active[:, None], value, held)
        value += tl.load(d_y + offset, mask=inside, other=0.0)
        if masks is not None:
            value *= tl.load(masks + direction * batch * size + at, mask=within, other=0.0)
        value = passed(value, tl.load(out + offset, mask=inside, other=0.0), bound)
        value = tl.where(before[:, None], value, 0.0)
        tl.store(d_out + offset, value.to(d_out.dtype.element_ty), mask=within)


@triton.jit
def update_gradients(
    d_hidden, gates, after_at, before_at, d_c, d_gates, hidden, row, lengths, step, batch, count, bound, first,
    PROJECT: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Go back through o·tanh(c), the clip of c and the gates of the cells from `first` on, as `update_cells` forwards.

    In pieces of 4,096 or 16 columns.
    """
    if BM * BC > 4096 and BC > 16:
        left, right = halves(d_hidden, BM, BC)
        update_gradients(
            left, gates, after_at, before_at, d_c, d_gates, hidden, row, lengths, step, batch, count, bound,
            first, PROJECT, BM, BC // 2,
        )  # fmt: skip
        update_gradients(
            right, gates, after_at, before_at, d_c, d_gates, hidden, row, lengths, step, batch, count, bound,
            first + BC // 2, PROJECT, BM, BC // 2,
        )  # fmt: skip
    else:
        cell = first + tl.arange(0, BC)
        active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
        within = (row < batch)[:, None] & (cell < count)[None, :]
        inside = active[:, None] & (cell < count)[None, :]
        at = row[:, None] * count + cell[None, :]
        gates += row[:, None] * 4 * count + cell[None, :]
        d_gates += row[:, None] * 4 * count + cell[None, :]
        # All loads before the first store, which no later load could pass. Rows without this step load zeros, so their
        # gradients are zeros.
        i = tl.load(gates, mask=inside, other=0.0)
        f = tl.load(gates + count, mask=inside, other=0.0)
        g = tl.load(gates + 2 * count, mask=inside, other=0.0)
        o = tl.load(gates + 3 * count, mask=inside, other=0.0)
        after = tl.load(after_at + at, mask=inside, other=0.0)
        before = tl.load(before_at + at, mask=inside, other=0.0)
        d_cell = tl.load(d_c + at, mask=inside, other=0.0)
        dtype: tl.constexpr = d_gates.dtype.element_ty
        o = exact_gate(o.to(tl.float32), dtype)
        t = exact_tanh(clipped(after, bound), dtype)
        if PROJECT:
            tl.store(hidden + at, (o * t).to(hidden.dtype.element_ty), mask=within)
        tl.store(d_gates + 3 * count, (d_hidden * t * o * (1.0 - o)).to(dtype), mask=within)
        d_cell = passed(d_cell + d_hidden * o * (1.0 - t * t), after, bound)
        f = exact_gate(f.to(tl.float32), dtype)
        tl.store(d_c + at, d_cell * f, mask=inside)
        # The initial state is not clipped.
        before = tl.where(step == 0, before, clipped(before, bound))
        tl.store(d_gates + count, (d_cell * before * f * (1.0 - f)).to(dtype), mask=within)
        i = exact_gate(i.to(tl.float32), dtype)
        g = exact_tanh(g.to(tl.float32), dtype)
        tl.store(d_gates, (d_cell * g * i * (1.0 - i)).to(dtype), mask=within)
        tl.store(d_gates + 2 * count, (d_cell * i * (1.0 - g * g)).to(dtype), mask=within)


@triton.jit(do_not_specialize=["step"])
def projected_lstm_backward_cells_kernel(
    d_out, weight, product, stride, gates, c, d_c, d_gates, hidden, lengths, step, batch, time, size, count, bound,
    FUSED: tl.constexpr, PROJECT: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Run step `step` backwards: d_out · W_hr, then through o·tanh(c), the clip of c and the gates.

    d_out [R, T, B, D]; weight [R, D, H]; product [R, B, H], directions `stride` apart: d_out · weight if not FUSED,
    without a projection d_out itself; gates [R, T, B, 4H] pre-activations; c [R, T+1, B, H] before its clip; d_c [R,
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
    hidden += now * count
    d_gates += now * 4 * count
    # Rows are sorted by length: blocks whose rows have all ended only write the zeros that the large products read.
    if tl.max(active.to(tl.int32)) == 0:
        nothing = tl.zeros((BM, BC), dtype=d_gates.dtype.element_ty)
        for gate in tl.static_range(4):
            tl.store(d_gates + (row[:, None] * 4 + gate) * count + cell[None, :], nothing, mask=within)
        if PROJECT:
            tl.store(hidden + at, nothing, mask=within)
        return
    inside = active[:, None] & (cell < count)[None, :]
    if FUSED:
        d_hidden = tl.zeros((BM, BC), dtype=tl.float32)
        d_out += (now + row)[:, None] * size
        weight += direction * size * count + cell[None, :]
        for start in range(0, size, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(d_out + k[None, :], mask=active[:, None] & (k < size)[None, :], other=0.0)
            b = tl.load(weight + k[:, None] * count, mask=(k < size)[:, None] & (cell < count)[None, :], other=0.0)
            d_hidden = plus_product(d_hidden, a, b, PRECISION)
    else:
        d_hidden = tl.load(product + direction * stride + at, mask=inside, other=0.0).to(tl.float32)

    before_at = c + (direction * (time + 1) + step) * batch * count
    update_gradients(
        d_hidden, gates + now * 4 * count, before_at + batch * count, before_at, d_c + direction * batch * count,
        d_gates, hidden, row, lengths, step, batch, count, bound, tl.program_id(0) * BC, PROJECT, BM, BC,
    )  # fmt: skip


class Gradients(NamedTuple):
    """Gradients in step order.

    They are the gradients of the outputs, of the projections before their clip and of the pre-activations; hidden is
    o·tanh(c), computed again; h and c are the state's gradient, at the end that of the state before the first step.
    """

    outputs: Tensor
    projections: Tensor
    gates: Tensor
    hidden: Tensor
    h: Tensor
    c: Tensor


def allocate(layer: Layer, like: Tensor, project: bool) -> Gradients:
    """Allocate memory for a backward pass."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    return Gradients(
        like.new_empty(r, t, b, d),
        like.new_empty(r, t, b, d, dtype=layer.dtype if project else like.dtype),
        like.new_empty(r, t, b, 4 * h, dtype=layer.dtype),
        like.new_empty((r, t, b, h) if project else 0, dtype=layer.dtype),
        *(
            zeros.view(r, b, width)
            for zeros, width in zip(like.new_zeros(r * b * (d + h)).split([r * b * d, r * b * h]), (d, h), strict=True)
        ),
    )


def scan(
    layer: Layer, steps: Steps, weights: list[Tensor], masks: Tensor | None, lengths: Tensor, grads: Gradients
) -> None:
    """Run all steps from the last, three launches each. weights: W_hh, and W_hr or nothing."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    weight_hh, *projection = weights
    device = lengths.device
    fused = bool(projection) and is_fused(layer, device)
    tile, _ = tiles(layer, "cells_backward" if fused or not projection else "pointwise", device)
    precision = input_precision(layer.dtype, device)
    recur = SplitProduct.of(layer, "recur", grads.h)
    bounds = [None if math.isinf(clip) else clip for clip in layer.clips]
    for step in range(t, -1, -1):
        if step < t:
            recur.launch(layer, grads.gates, weight_hh, lengths, step, step, transposed=False)
        launch(
            projected_lstm_backward_finish_recurrence_kernel, recur.grid,
            recur.parts, grads.h, grads.outputs, masks, steps.projections,
            grads.projections, lengths, step, b, t, d, bounds[1], PRODUCT=step < t, launch_pdl=True, **recur.adding,
        )  # fmt: skip
        if step > 0:
            product = grads.projections.select(1, step - 1)
            if projection and not fused:
                product = _triton.matmul(product, projection[0], torch.float32)
            launch(
                projected_lstm_backward_cells_kernel, (cdiv(h, tile.columns), cdiv(b, tile.rows), r),
                grads.projections, projection[0] if projection else None, product, product.stride(0), steps.gates,
                steps.cells, grads.c, grads.gates, grads.hidden, lengths, step - 1, b, t, d, h, bounds[0],
                FUSED=fused, PROJECT=bool(projection),
                BM=tile.rows, BC=tile.columns, BK=tile.depth, PRECISION=precision, launch_pdl=True, **tile.options,
            )  # fmt: skip


def of_weights(layer: Layer, steps: Steps, grads: Gradients, project: bool) -> list[Tensor]:
    """Compute the gradients of W_ih, W_hh, bias and W_hr, directions concatenated: one product over all steps."""
    gates = grads.gates.flatten(1, 2).transpose(1, 2)
    gradients = [
        _triton.matmul(gates, steps.inputs.flatten(1, 2), torch.float32),
        _triton.matmul(gates, steps.hidden.narrow(1, 0, layer.time).flatten(1, 2), torch.float32),
        grads.gates.sum((1, 2), dtype=torch.float32),
    ]
    if project:
        projections = grads.projections.flatten(1, 2).transpose(1, 2)
        gradients.append(_triton.matmul(projections, grads.hidden.flatten(1, 2), torch.float32))
    return gradients


def of_inputs(
    layer: Layer, grads: Gradients, weight_ih: Tensor, a: Any, order: Tensor | None, falling: Tensor
) -> list[Tensor]:
    """Compute the gradients of the inputs, R tensors [B, T, I]; a residual adds the outputs' own gradient."""
    product = _triton.matmul(grads.gates.flatten(1, 2), weight_ih, torch.float32)
    outs = [product.new_empty(layer.batch, layer.time, layer.width) for _ in a.inputs]  # results may not share memory
    launch_from_step_order(layer, product, a.d_outputs.unbind(0), order, falling, None, outs, float("inf"))
    return outs


def backward(a: Any) -> tuple[Any, ...]:
    """Compute the gradients of inputs, weights (directions concatenated), h0 and c0; empty if not needed."""
    layer, count = layer_of(a), len(Steps._fields)
    steps, (order, falling, weight_ih, *others) = Steps(*a.saved[:count]), a.saved[count:]
    grads = allocate(layer, a.d_outputs, bool(a.weight_hr))
    order = order if order.numel() else None
    launch_to_step_order(layer, a.d_outputs.unbind(0), order, falling, grads.outputs)
    for d_state, into in ((a.d_h, grads.h), (a.d_c, grads.c)):
        if d_state is not None:
            into.copy_(sorted_rows(d_state, order))
    masks = sorted_rows(torch.stack(a.masks), order) if a.masks else None
    scan(layer, steps, others, masks, falling, grads)
    empty = a.d_outputs.new_empty
    d_weights = of_weights(layer, steps, grads, bool(a.weight_hr)) if a.need_weight_ih else []
    d_weights += [empty(0) for _ in range(4 - len(d_weights))]
    d_inputs = of_inputs(layer, grads, weight_ih, a, order, falling) if a.need_inputs else []
    if not a.need_h0:
        return d_inputs, *d_weights, empty(0), empty(0)
    if order is None:
        d_h0, d_c0 = grads.h.clone(), grads.c.clone()  # an op's results may not share memory
    else:
        d_h0, d_c0 = (each.index_select(1, torch.argsort(order)) for each in (grads.h, grads.c))
    return d_inputs, *d_weights, d_h0, d_c0


implement("projected_lstm_backward", backward)
