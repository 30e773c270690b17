"""The projected LSTM forwards: its kernels and their launches; docs/gpu.md explains shapes and step order.

Kernels between the user's order (row, position) and step order (step, row sorted by falling length) come first.
Position p of a row of length n is step p, or n - 1 - p if the direction walks backwards; there is no step past n. If
order is None, rows are in the same order on both sides. A step is three kernels: cells, the projection's product in
parts, their sum.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import after_previous, plus_product, tanh
from elmo_fast.ops._triton import (
    MULTIPROCESSORS,
    Tiles,
    cdiv,
    ceil_power_of_two,
    implement,
    input_precision,
    launch,
)

FUSED: bool | None = None  # overrides `is_fused`: for benchmarks, before a graph is captured

# Triton's interpreter has no assembly.
ASSEMBLY = tl.constexpr(not triton.knobs.runtime.interpret)


@triton.jit
def clipped(x, bound):
    """Compute torch.clamp(x, -bound, bound): NaN stays NaN, which minimum and maximum would hide.

    With a bound of None the result is x.
    """
    if bound is None:
        found = x
    else:
        found = tl.where(x > bound, bound, tl.where(x < -bound, -bound, x))
    return found


@triton.jit
def original(order, row):
    """Return the row of the batch that has index `row` in step order."""
    if order is None:
        found = row
    else:
        found = tl.load(order + row)
    return found


@triton.jit
def to_step_order(x, order, lengths, out, batch, width, stride_b, stride_t, stride_i, REVERSE, BLOCK):
    """Move a row of one step: `projected_lstm_to_step_order_kernel`."""
    index = tl.program_id(0).to(tl.int64)
    step, row = index // batch, index % batch
    length = tl.load(lengths + row)
    position = length - 1 - step if REVERSE else step
    source = original(order, row) * stride_b + position * stride_t
    present = tl.where(step < length, width, 0)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(x + source + column.to(tl.int64) * stride_i, mask=column < present, other=0.0)
        tl.store(out + index * width + column, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def projected_lstm_to_step_order_kernel(
    inputs, order, lengths, out, batch, time, width, stride_b, stride_t, stride_i,
    BACKWARDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute out[direction, step, row] = inputs[direction][order[row], position], 0 if the row has no such step.

    BACKWARDS: bit r is set if direction r walks backwards. A program per row and direction.
    """
    out += tl.program_id(1).to(tl.int64) * time * batch * width
    for r in tl.static_range(len(inputs)):
        if tl.program_id(1) == r:
            to_step_order(
                inputs[r], order, lengths, out, batch, width, stride_b, stride_t, stride_i, BACKWARDS >> r & 1, BLOCK
            )


@triton.jit
def from_step_order(
    steps, x, order, lengths, masks, out, batch, time, width, stride_b, stride_t, stride_i, bound,
    REVERSE, RESIDUAL, BLOCK,
):  # fmt: skip
    """Move a row of one step: `projected_lstm_from_step_order_kernel`."""
    index = tl.program_id(0).to(tl.int64)
    position, row = index // batch, index % batch
    length = tl.load(lengths + row)
    step = length - 1 - position if REVERSE else position
    target = original(order, row)
    present = tl.where(position < length, width, 0)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(steps + (step * batch + row) * width + column, mask=column < present, other=0.0).to(tl.float32)
        value = clipped(value, bound)
        if masks is not None:
            value = value * tl.load(masks + row * width + column, mask=inside, other=0.0)
        if RESIDUAL:
            offset = target * stride_b + position * stride_t + column.to(tl.int64) * stride_i
            value += tl.load(x + offset, mask=column < present, other=0.0)
        tl.store(out + (target * time + position) * width + column, value, mask=inside)


@triton.jit
def projected_lstm_from_step_order_kernel(
    steps, inputs, order, lengths, masks, outs, batch, time, width, stride_b, stride_t, stride_i, bound,
    BACKWARDS: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute outs[r][order[row], position] = clip(steps[r, step, row]) (times masks[r]) + inputs[r] there.

    It is 0 past the length. BACKWARDS: bit r is set if direction r walks backwards.
    """
    rows = tl.program_id(1).to(tl.int64) * batch
    steps += rows * time * width
    if masks is not None:
        masks += rows * width
    for r in tl.static_range(len(outs)):
        if tl.program_id(1) == r:
            from_step_order(
                steps, inputs[r], order, lengths, masks, outs[r], batch, time, width, stride_b, stride_t, stride_i,
                bound, BACKWARDS >> r & 1, RESIDUAL, BLOCK,
            )  # fmt: skip


@triton.jit
def final_state(steps, start, order, lengths, masks, out, batch, width, slots, first, bound, BLOCK):
    """Compute out[order[row]] = clip(result of the row's last step), or the row's start if it has no step.

    Step s lies in slot (s + first) % slots of `steps` [R, slots, batch, width].
    """
    row, direction = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + row)
    target = direction * batch + original(order, row)
    slot = (tl.maximum(length, 1) - 1 + first) % slots
    ran = tl.where(length > 0, width, 0)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        source = ((direction * slots + slot) * batch + row) * width + column
        value = clipped(tl.load(steps + source, mask=column < ran, other=0.0), bound)
        if masks is not None:
            value = value * tl.load(masks + (direction * batch + row) * width + column, mask=inside, other=0.0)
        if start is not None:
            held = tl.load(start + target * width + column, mask=inside, other=0.0)
            value = tl.where(length > 0, value, held)
        tl.store(out + target * width + column, value, mask=inside)


@triton.jit
def projected_lstm_forward_final_state_kernel(
    out, h0, last_h, out_bound, c, c0, last_c, cell_bound, order, lengths, masks, batch, time, size, count, c_slots,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute h from out [R, T, B, D] and c from c [R, c_slots, B, H], both before their clips: `final_state`."""
    if tl.program_id(2) == 0:
        final_state(out, h0, order, lengths, masks, last_h, batch, size, tl.maximum(time, 1), 0, out_bound, BLOCK)
    else:
        final_state(c, c0, order, lengths, None, last_c, batch, count, c_slots, 1, cell_bound, BLOCK)


@triton.jit
def projected_lstm_forward_input_product_kernel(
    x, weight, out, rows, width, columns, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Compute out [R, rows, columns] float16 = x [R, rows, width] · weight [R, columns, width]^T.

    The product accumulates in float32. Numbers beyond float16's range become its largest, for which every gate is
    saturated; NaN stays. Consecutive blocks share their columns of `weight`. Floor: 2·rows·columns·width FLOP; out, the
    most bytes, once.
    """
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    x += (direction * rows + row)[:, None] * width
    weight += (direction * columns + column)[None, :] * width
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, width, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + k[None, :], mask=(row < rows)[:, None] & (k < width)[None, :], other=0.0)
        b = tl.load(weight + k[:, None], mask=(k < width)[:, None] & (column < columns)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    at = (direction * rows + row)[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out + at, clipped(acc, 65504.0).to(tl.float16), mask=inside)


@triton.jit
def approximate(x, NAME: tl.constexpr):
    """Compute ex2 (2^x), rcp (1/x) or tanh in one instruction, to 2^-22, 2^-23 or 2^-11 (PTX ISA).

    The interpreter computes it exactly.
    """
    if ASSEMBLY:
        code: tl.constexpr = NAME + (".approx.f32 $0, $1;" if NAME == "tanh" else ".approx.ftz.f32 $0, $1;")
        return tl.inline_asm_elementwise(code, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    if NAME == "tanh":
        return tanh(x)
    return tl.exp2(x) if NAME == "ex2" else 1.0 / x


@triton.jit
def gate(x, dtype: tl.constexpr):
    """Compute σ(x), as exactly as operands of `dtype` deserve, without a division for 16 bits.

    2^-11 is a quarter of what bfloat16 rounds by; float16 rounds by no more than that, so tanh.approx is not for it.
    """
    if dtype == tl.bfloat16:
        return tl.fma(approximate(0.5 * x, "tanh"), 0.5, 0.5)
    if dtype == tl.float16:
        return approximate(1.0 + approximate(x * -1.4426950408889634, "ex2"), "rcp")
    return tl.sigmoid(x)


@triton.jit
def squash(x, dtype: tl.constexpr):
    """Compute tanh(x), as exactly as `gate`."""
    if dtype == tl.bfloat16:
        return approximate(x, "tanh")
    if dtype == tl.float16:
        return tl.fma(approximate(1.0 + approximate(x * 2.8853900817779268, "ex2"), "rcp"), -2.0, 1.0)
    return tanh(x)


@triton.jit
def halves(x, BM: tl.constexpr, BC: tl.constexpr):
    """Split the columns of x [BM, BC] into two tensors [BM, BC // 2]."""
    return tl.split(tl.permute(tl.reshape(x, (BM, 2, BC // 2)), (0, 2, 1)))


@triton.jit
def quarters(x, BM: tl.constexpr, BC: tl.constexpr):
    """Split x [BM, 4 BC] into the gates i, f, g and o [BM, BC].

    Its columns are (i and f or g and o, cell, which of both). A thread that holds one gate of a cell holds all of them,
    so nothing moves.
    """
    x = tl.permute(tl.reshape(x, (BM, 2, BC, 2)), (0, 2, 1, 3))
    ig, fo = tl.split(x)
    i, g = tl.split(ig)
    f, o = tl.split(fo)
    return i, f, g, o


@triton.jit
def update_cells(
    i, f, g, o, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound, first,
    SAVE: tl.constexpr, PROJECT: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Update cells from `first` on, in pieces of 2,048 or 16 columns: all addresses at once would spill.

    A piece loads everything before it stores anything: no load can pass a store that may alias it.
    """
    if BM * BC > 2048 and BC > 16:
        i0, i1 = halves(i, BM, BC)
        f0, f1 = halves(f, BM, BC)
        g0, g1 = halves(g, BM, BC)
        o0, o1 = halves(o, BM, BC)
        update_cells(
            i0, f0, g0, o0, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound,
            first, SAVE, PROJECT, BM, BC // 2,
        )  # fmt: skip
        update_cells(
            i1, f1, g1, o1, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound,
            first + BC // 2, SAVE, PROJECT, BM, BC // 2,
        )  # fmt: skip
    else:
        row = tl.program_id(1) * BM + tl.arange(0, BM)
        cell = first + tl.arange(0, BC)
        active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
        inside = active[:, None] & (cell < count)[None, :]
        dtype: tl.constexpr = h_next.dtype.element_ty
        wide: tl.constexpr = gates.dtype.element_ty
        bias += cell
        gates += row[:, None] * 4 * count + cell[None, :]
        at = row[:, None] * count + cell[None, :]
        of_i = tl.load(gates, mask=inside, other=0.0)
        of_f = tl.load(gates + count, mask=inside, other=0.0)
        of_g = tl.load(gates + 2 * count, mask=inside, other=0.0)
        of_o = tl.load(gates + 3 * count, mask=inside, other=0.0)
        held = tl.load(before + at, mask=inside, other=0.0)
        i += tl.load(bias, mask=cell < count, other=0.0)[None, :]
        f += tl.load(bias + count, mask=cell < count, other=0.0)[None, :]
        g += tl.load(bias + 2 * count, mask=cell < count, other=0.0)[None, :]
        o += tl.load(bias + 3 * count, mask=cell < count, other=0.0)[None, :]
        i += of_i.to(tl.float32)
        f += of_f.to(tl.float32)
        g += of_g.to(tl.float32)
        o += of_o.to(tl.float32)
        if SAVE:
            tl.store(gates, i.to(wide), mask=inside)
            tl.store(gates + count, f.to(wide), mask=inside)
            tl.store(gates + 2 * count, g.to(wide), mask=inside)
            tl.store(gates + 3 * count, o.to(wide), mask=inside)
        # Step 0 reads the initial state, which is not clipped. c is stored before its clip, which backward needs.
        after = gate(i, dtype) * squash(g, dtype)
        after = tl.fma(gate(f, dtype), tl.where(step == 0, held, clipped(held, bound)), after)
        tl.store(c + at, after, mask=inside)
        value = gate(o, dtype) * squash(clipped(after, bound), dtype)
        if PROJECT:
            tl.store(hidden + at, value.to(hidden.dtype.element_ty), mask=inside)
        else:
            tl.store(out + at, value, mask=inside)
            if masks is not None:
                value *= tl.load(masks + at, mask=inside, other=0.0)
            # Rows that have ended write zeros: the product for W_hh's gradient reads them.
            value = tl.where(active[:, None], value, 0.0)
            within = (row < batch)[:, None] & (cell < count)[None, :]
            tl.store(h_next + at, value.to(h_next.dtype.element_ty), mask=within)


@triton.jit(do_not_specialize=["step"])
def projected_lstm_forward_cells_kernel(
    h, weight, product, bias, gates, c, hidden, masks, out, h_next, lengths, step, batch, time, size, count, c_slots,
    bound, FUSED: tl.constexpr, SAVE: tl.constexpr, PROJECT: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Run step `step` of all rows and directions: gates, cell, and o·tanh(c) as the operand of the projection.

    h [R, T+1, B, D] operands, read at `step`; weight [R, 4H, D]; bias [R, 4H]; gates [R, T, B, 4H]: in, the inputs'
    part of the pre-activations, out (SAVE) the pre-activations; c [R, c_slots, B, H] before its clip, read at `step`,
    written after it; hidden [R, B, H]. Without a projection the results go to out [R, T, B, D] and h_next = h at step +
    1. If not FUSED, product [R, B, 4H] float32 is h · weight^T, or None if gates have it already. Floor: 2·B·4H·D FLOP
    per direction, or W_hh (16.8 MB in 16 bit) once from L2 where B is small; if not FUSED, the bytes of product, gates
    and cells.
    """
    after_previous()
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    first = tl.program_id(0) * BC
    if tl.max(active.to(tl.int32)) == 0:
        if SAVE and not PROJECT:  # zeros for W_hh's gradient; with a projection the kernel that finishes it writes them
            cell = first + tl.arange(0, BC)
            h_next += ((direction * (time + 1) + step + 1) * batch + row)[:, None] * count + cell[None, :]
            within = (row < batch)[:, None] & (cell < count)[None, :]
            tl.store(h_next, tl.zeros((BM, BC), dtype=h_next.dtype.element_ty), mask=within)
        return
    if FUSED:
        h += ((direction * (time + 1) + step) * batch + row)[:, None] * size
        # One product of all four gates: for several with the same rows Triton would give each warp 16 rows of every
        # column.
        n = tl.arange(0, 4 * BC)
        gate, cell = n // (2 * BC) * 2 + n % 2, first + n % (2 * BC) // 2
        weight += direction * 4 * count * size + (gate * count + cell).to(tl.int64)[None, :] * size
        acc = tl.zeros((BM, 4 * BC), dtype=tl.float32)
        for start in range(0, size, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(h + k[None, :], mask=active[:, None] & (k < size)[None, :], other=0.0)
            b = tl.load(weight + k[:, None], mask=(k < size)[:, None] & (cell < count)[None, :], other=0.0)
            acc = plus_product(acc, a, b, PRECISION)
        i, f, g, o = quarters(acc, BM, BC)
    elif product is None:
        nothing = tl.zeros((BM, BC), dtype=tl.float32)
        i, f, g, o = nothing, nothing, nothing, nothing
    else:
        cell = first + tl.arange(0, BC)
        inside = active[:, None] & (cell < count)[None, :]
        product += (direction * batch + row)[:, None] * 4 * count + cell[None, :]
        i = tl.load(product, mask=inside, other=0.0)
        f = tl.load(product + count, mask=inside, other=0.0)
        g = tl.load(product + 2 * count, mask=inside, other=0.0)
        o = tl.load(product + 3 * count, mask=inside, other=0.0)

    bias += direction * 4 * count
    gates += (direction * time + step) * batch * 4 * count
    before = c + (direction * c_slots + step % c_slots) * batch * count
    c += (direction * c_slots + (step + 1) % c_slots) * batch * count
    hidden += direction * batch * count
    if not PROJECT:
        out += (direction * time + step) * batch * count
        h_next += (direction * (time + 1) + step + 1) * batch * count
        if masks is not None:
            masks += direction * batch * count
    update_cells(
        i, f, g, o, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound, first,
        SAVE, PROJECT, BM, BC,
    )  # fmt: skip


@triton.jit(do_not_specialize=["step", "slot"])
def projected_lstm_split_product_kernel(
    x, weight, parts, lengths, step, batch, size, depth, chunk, slots, slot, of_column, of_depth, SPLIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute parts [R·SPLIT, B, D] of x [R, slots, B, K] at `slot` · weight [R, K, D], each over `chunk` of the depth.

    Rows without step `step` are not written. weight has strides of_depth and of_column. Blocks that add parts
    themselves, the last of a tile to arrive, took three times as long as a second launch,
    `projected_lstm_forward_finish_projection_kernel` (H200).
    """
    after_previous()
    direction, part = (tl.program_id(2) // SPLIT).to(tl.int64), tl.program_id(2) % SPLIT
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    # The kernel that adds the parts masks the same rows.
    if tl.max(active.to(tl.int32)) == 0:
        return
    x += ((direction * slots + slot) * batch + row)[:, None] * depth
    weight += direction * depth * size + column.to(tl.int64)[None, :] * of_column
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    begin = part * chunk
    end = tl.minimum(depth, begin + chunk)
    for start in range(begin, end, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + k[None, :], mask=active[:, None] & (k < end)[None, :], other=0.0)
        inside = (k < end)[:, None] & (column < size)[None, :]
        b = tl.load(weight + k.to(tl.int64)[:, None] * of_depth, mask=inside, other=0.0)
        acc = plus_product(acc, a, b, PRECISION)
    at = (direction * SPLIT + part) * batch * size + row[:, None] * size + column[None, :]
    tl.store(parts + at, acc, mask=active[:, None] & (column < size)[None, :])


@triton.jit
def sum_of_parts(parts, at, inside, stride, SPLIT: tl.constexpr):
    """Add the parts that `projected_lstm_split_product_kernel` left, in order."""
    total = tl.zeros(at.shape, dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * stride + at, mask=inside, other=0.0)
    return total


@triton.jit(do_not_specialize=["step"])
def projected_lstm_forward_finish_projection_kernel(
    parts, masks, out, h, lengths, step, batch, time, size, bound, SPLIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add the parts of the projections of step `step`, and write them.

    out [R, T, B, D] float32 before the clip; h [R, T+1, B, D] operands after clip and mask, written at step + 1 (0 for
    rows that have ended: the weight gradient's product reads them).
    """
    after_previous()
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    within = (row < batch)[:, None] & (column < size)[None, :]
    inside = active[:, None] & within
    at = row[:, None] * size + column[None, :]
    value = sum_of_parts(parts + direction * SPLIT * batch * size, at, inside, batch * size, SPLIT)
    tl.store(out + (direction * time + step) * batch * size + at, value, mask=inside)
    value = clipped(value, bound)
    if masks is not None:
        value *= tl.load(masks + direction * batch * size + at, mask=within, other=0.0)
    h += (direction * (time + 1) + step + 1) * batch * size
    tl.store(h + at, tl.where(active[:, None], value, 0.0).to(h.dtype.element_ty), mask=within)


class Layer(NamedTuple):
    """Constants of a call: sizes, clips of cells and projections (inf: none), the dtype of the products' operands."""

    directions: int
    batch: int
    time: int
    width: int
    size: int
    cells: int
    reverse: tuple[bool, ...]
    clips: tuple[float, float]
    residual: bool
    dtype: torch.dtype

    @property
    def backwards(self) -> int:
        """Directions that walk backwards, as bits."""
        return sum(reverse << r for r, reverse in enumerate(self.reverse))

    @property
    def wide(self) -> torch.dtype:
        """Dtype of pre-activations: float16 for 16-bit operands, with more digits than bfloat16 and enough range."""
        return torch.float32 if self.dtype == torch.float32 else torch.float16


# Tiles of up to 128 x 256 numbers, and from how many rows on; columns of cells have four gates each.
WIDE = {
    "inputs": (128, Tiles(128, 256, 64, 8, 3)),
    "cells": (256, Tiles(128, 64, 64, 8, 3)),
    "cells_backward": (256, Tiles(128, 128, 64, 8, 3)),
    "recur": (256, Tiles(128, 256, 64, 8, 3)),
    "project": (256, Tiles(128, 128, 64, 8, 4)),
}
SPLIT_ROWS = 64  # from here on cuBLAS multiplies: `is_fused`
SUMMED_ROWS = 4  # of a block that sums the parts of a split product


def layer_of(a: Any) -> Layer:
    """Return the sizes and options in a registered op's arguments. Raises ElmoFastError if a step is too large."""
    (batch, time, width), (gates, size) = a.inputs[0].shape, a.weight_hh[0].shape
    most = min((2**31 - 1) // gates, SUMMED_ROWS * _triton.MOST_BLOCKS)  # offsets of 32 bits; a block for each few rows
    if batch > most:
        raise ElmoFastError(
            f"projected_lstm: a step of B={batch} rows and H={gates // 4} cells is too large; use B <= {most}"
        )
    return Layer(
        len(a.inputs), batch, time, width, size, gates // 4, tuple(a.reverse), (a.cell_clip, a.projection_clip),
        a.residual, getattr(torch, a.precision),
    )  # fmt: skip


def is_fused(layer: Layer, device: torch.device) -> bool:
    """Return whether a step's products with W_hh and W_hr are in the kernels of its cells; otherwise they are cuBLAS's.

    cuBLAS is faster where its tiles fill the GPU, and as long as its float32 results stay in L2 until the cells have
    read them; `WIDE` tiles take over from there. In float32 it would not use tensor cores.
    """
    if FUSED is not None:
        return FUSED
    splits = SPLIT_ROWS <= layer.batch < WIDE["cells"][0] and layer.dtype != torch.float32
    return not (splits and _triton.reads_wide_tiles(device))


def tiles(layer: Layer, kernel: str, device: torch.device) -> tuple[Tiles, int]:
    """Return the tile of a kernel, and the number of blocks that split a long sum: at most as many as it has depths.

    kernel: inputs, cells, cells_backward; project or recur, which `projected_lstm_split_product_kernel` computes; or
    pointwise: cells of either pass without a product. Few rows stream weights: small tiles, several blocks on each
    multiprocessor. For 128 rows these were the fastest on an H200 of some fifteen each, and fit into the shared memory
    of small GPUs. More rows read the weights from L2 once for each tile of rows, and the rows once for each tile of
    columns: wide tiles read less.
    """
    if kernel == "pointwise":
        rows = 1 if layer.batch <= _triton.MOST_BLOCKS else SUMMED_ROWS
        return Tiles(rows, ceil_power_of_two(layer.cells, 16, 512), 16, 4, 1), 1
    rows_of_all = layer.batch * (layer.time if kernel == "inputs" else 1)
    rows = ceil_power_of_two(rows_of_all, 16, 128)
    small = _triton.is_small(device)
    if layer.dtype == torch.float32 and small:
        tile = Tiles(min(rows, 32), 32, 32, 4, 2)
    elif layer.dtype == torch.float32:
        # The depth is how many products are added up by themselves (`_kernels.plus_product`): at most 32.
        if rows <= 32:
            tile = Tiles(rows, 32, 32, 4, 2 if kernel == "cells" else 3)
        else:
            tile = Tiles(64, 32, 32, 8, 2) if kernel == "cells" else Tiles(64, 64, 32, 8, 3)
    elif rows <= 32:
        tile = Tiles(rows, 32 if kernel == "cells" else 64, 64, 4, 4)
    elif kernel in WIDE and rows_of_all >= WIDE[kernel][0] and _triton.reads_wide_tiles(device):
        tile = WIDE[kernel][1]
    else:
        tile = {
            "inputs": Tiles(rows, 128, 64, 8, 3),
            "cells": Tiles(rows, 32, 64, 4, 3),
            "cells_backward": Tiles(rows, 64, 64, 8, 4),
            "project": Tiles(64, 64, 128, 4, 3 if small else 4),
            "recur": Tiles(rows, 128, 64, 4, 3 if small else 4),
        }[kernel]
    parts = 1
    if kernel in ("project", "recur"):
        whole = layer.directions * max(1, cdiv(layer.batch, tile.rows)) * cdiv(layer.size, tile.columns)
        depths = cdiv(layer.cells * (4 if kernel == "recur" else 1), tile.depth)
        while parts < 16 and 2 * parts <= min(depths, MULTIPROCESSORS // whole):
            parts *= 2
    return tile, parts


class SplitProduct(NamedTuple):
    """Launch of `projected_lstm_split_product_kernel`, a step's long product, and of the kernel that adds its parts.

    parts: [R·split, B, D]; adding: constants of the kernel that adds them, on `grid`.
    """

    tile: Tiles
    split: int
    parts: Tensor
    grid: tuple[int, int, int]
    adding: dict[str, int]

    @classmethod
    def of(cls, layer: Layer, kernel: str, like: Tensor) -> "SplitProduct":
        """Choose tiles and allocate the parts, float32 on the device of `like`."""
        tile, split = tiles(layer, kernel, like.device)
        r, b, d = layer.directions, layer.batch, layer.size
        rows, columns = SUMMED_ROWS, ceil_power_of_two(d, 16, 256)
        parts = like.new_empty(r * split, b, d, dtype=torch.float32)
        return cls(
            tile, split, parts, (cdiv(d, columns), cdiv(b, rows), r), {"SPLIT": split, "BM": rows, "BN": columns}
        )

    def launch(
        self, layer: Layer, x: Tensor, weight: Tensor, lengths: Tensor, step: int, slot: int, *, transposed: bool
    ) -> None:
        """Multiply x [R, slots, B, K] at `slot` by weight [R, K, D], or by [R, D, K] transposed, into the parts."""
        tile, split = self.tile, self.split
        _, slots, b, depth = x.shape
        chunk = cdiv(cdiv(depth, split), tile.depth) * tile.depth
        strides = (depth, 1) if transposed else (1, layer.size)
        launch(
            projected_lstm_split_product_kernel,
            (cdiv(layer.size, tile.columns), cdiv(b, tile.rows), layer.directions * split),
            x, weight, self.parts, lengths, step, b, layer.size, depth, chunk, slots, slot, *strides,
            SPLIT=split, BM=tile.rows, BN=tile.columns, BK=tile.depth,
            PRECISION=input_precision(layer.dtype, x.device), launch_pdl=True, **tile.options,
        )  # fmt: skip


class Steps(NamedTuple):
    """Results of the scan, in step order; see the kernels for their shapes.

    c and h have one more slot than steps.
    """

    inputs: Tensor
    gates: Tensor
    cells: Tensor
    projections: Tensor
    hidden: Tensor


def stacked(weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the weights of all directions one behind the other, [R, ...], in `dtype`."""
    stack = weights[0].new_empty(len(weights), *weights[0].shape, dtype=dtype)
    torch._foreach_copy_(list(stack.unbind(0)), [weight.detach() for weight in weights])
    return stack


def pack(
    weight_ih: Sequence[Tensor], weight_hh: Sequence[Tensor], weight_hr: Sequence[Tensor], precision: str
) -> list[Tensor]:
    """Return W_ih, W_hh and W_hr if there is one, rounded, each of all directions."""
    dtype = getattr(torch, precision)
    return [stacked(weights, dtype) for weights in (weight_ih, weight_hh, weight_hr) if weights]


def copies_of(a: Any) -> list[Tensor]:
    """Return what `pack` makes of the weights, now or before."""
    if a.packed and not a.save:
        return list(a.packed)
    return pack(a.weight_ih, a.weight_hh, a.weight_hr, a.precision)


def alike(inputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors with the same strides."""
    tensors = tuple(inputs)
    return tensors if len({each.stride() for each in tensors}) == 1 else tuple(each.contiguous() for each in tensors)


def launch_to_step_order(
    layer: Layer, inputs: Iterable[Tensor], order: Tensor | None, lengths: Tensor, out: Tensor
) -> None:
    """Write the inputs, R tensors [B, T, *], into out [R, T, B, *] in step order, in out's dtype."""
    tensors, width = alike(inputs), out.shape[3]
    launch(
        projected_lstm_to_step_order_kernel, (layer.time * layer.batch, layer.directions),
        tensors, order, lengths, out, layer.batch, layer.time, width, *tensors[0].stride(),
        BACKWARDS=layer.backwards, BLOCK=ceil_power_of_two(width, 16, 1024),
    )  # fmt: skip


def launch_from_step_order(
    layer: Layer, steps: Tensor, inputs: Iterable[Tensor], order: Tensor | None, lengths: Tensor,
    masks: Tensor | None, outs: Iterable[Tensor], bound: float,
) -> None:  # fmt: skip
    """Write steps [R, T, B, *] into outs, R tensors [B, T, *], in the user's order; a residual adds the inputs."""
    tensors, width = alike(inputs), steps.shape[-1]
    launch(
        projected_lstm_from_step_order_kernel, (layer.time * layer.batch, layer.directions),
        steps, tensors, order, lengths, masks, tuple(outs), layer.batch, layer.time, width, *tensors[0].stride(), bound,
        BACKWARDS=layer.backwards, RESIDUAL=layer.residual, BLOCK=ceil_power_of_two(width, 16, 1024),
    )  # fmt: skip


def inputs_half(layer: Layer, x: Tensor, weight_ih: Tensor) -> Tensor:
    """Compute the inputs' part [R, T, B, 4H] of the pre-activations, from the inputs [R, T, B, I].

    cuBLAS stores no float16 for bfloat16 operands: a kernel of ours does, which saves half of the largest tensor.
    """
    gates = 4 * layer.cells
    if layer.dtype != torch.bfloat16:
        product = _triton.matmul(x.flatten(1, 2), weight_ih.transpose(1, 2), layer.wide)
        return product.view(*x.shape[:3], gates)
    out, rows = x.new_empty(*x.shape[:3], gates, dtype=layer.wide), layer.time * layer.batch
    tile, _ = tiles(layer, "inputs", x.device)
    launch(
        projected_lstm_forward_input_product_kernel,
        (cdiv(rows, tile.rows), cdiv(gates, tile.columns), layer.directions),
        x, weight_ih, out, rows, layer.width, gates, BM=tile.rows, BN=tile.columns, BK=tile.depth, **tile.options,
    )  # fmt: skip
    return out


def allocate(layer: Layer, x: Tensor, save: bool, ragged: bool) -> Steps:
    """Allocate memory for a pass but for the gates; without `save` cells have two slots.

    ragged: rows may end before T; what is saved for their missing steps is then 0.
    """
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    slots = t + 1 if save else 2
    return Steps(
        x.new_empty(r, t, b, layer.width, dtype=layer.dtype),
        x.new_empty(0, dtype=layer.wide),
        (x.new_zeros if ragged and save else x.new_empty)(r, slots, b, h),
        (x.new_zeros if ragged and save else x.new_empty)(r, t, b, d),
        x.new_empty(r, t + 1, b, d, dtype=layer.dtype),
    )


def sorted_rows(x: Tensor, order: Tensor | None) -> Tensor:
    """Return x [R, B, *] with its rows in step order; order=None if they already are."""
    return x if order is None else x.index_select(1, order)


def scan(layer: Layer, steps: Steps, weights: list[Tensor], masks: Tensor | None, lengths: Tensor, save: bool) -> None:
    """Run all steps, three launches each (one without a projection). weights: W_hh, bias, and W_hr or nothing.

    Unless the cells are fused with it, cuBLAS's product comes first; it adds to gates of its operands' dtype in place.
    """
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    weight_hh, bias, *projection = weights
    device = lengths.device
    fused = is_fused(layer, device)
    tile, _ = tiles(layer, "cells" if fused else "pointwise", device)
    precision = input_precision(layer.dtype, device)
    hidden = steps.hidden.new_empty(r, 1, b, h)
    project = SplitProduct.of(layer, "project", hidden) if projection else None
    for step in range(t):
        product, before, gates = None, steps.hidden.select(1, step), steps.gates.select(1, step)
        if not fused and before.dtype != gates.dtype:
            product = _triton.matmul(before, weight_hh.transpose(1, 2), torch.float32)
        elif not fused:
            with _triton.parts_in_float32:
                torch.baddbmm(gates, before, weight_hh.transpose(1, 2), out=gates)
        launch(
            projected_lstm_forward_cells_kernel, (cdiv(h, tile.columns), cdiv(b, tile.rows), r),
            steps.hidden, weight_hh, product, bias, steps.gates, steps.cells, hidden, masks, steps.projections,
            steps.hidden, lengths, step, b, t, d, h, steps.cells.shape[1], layer.clips[0],
            FUSED=fused, SAVE=save, PROJECT=bool(projection),
            BM=tile.rows, BC=tile.columns, BK=tile.depth, PRECISION=precision, launch_pdl=True, **tile.options,
        )  # fmt: skip
        if project is not None:
            project.launch(layer, hidden, projection[0], lengths, step, 0, transposed=True)
            launch(
                projected_lstm_forward_finish_projection_kernel, project.grid,
                project.parts, masks, steps.projections, steps.hidden, lengths,
                step, b, t, d, layer.clips[1], launch_pdl=True, **project.adding,
            )  # fmt: skip


def finish(
    layer: Layer, steps: Steps, a: Any, order: Tensor | None, lengths: Tensor, masks: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (outputs [R, B, T, D], h [R, B, D], c [R, B, H]) in the user's order."""
    r, b, t, d, h = layer.directions, layer.batch, layer.time, layer.size, layer.cells
    new = steps.projections.new_empty
    outputs, last_h, last_c = new(r, b, t, d), new(r, b, d), new(r, b, h)
    launch_from_step_order(layer, steps.projections, a.inputs, order, lengths, masks, outputs.unbind(0), layer.clips[1])
    h0, c0 = (None if start is None else start.contiguous() for start in (a.h0, a.c0))
    launch(
        projected_lstm_forward_final_state_kernel, (b, r, 2),
        steps.projections, h0, last_h, layer.clips[1], steps.cells, c0, last_c, layer.clips[0],
        order, lengths, masks, b, t, d, h, steps.cells.shape[1], BLOCK=ceil_power_of_two(d, 16, 1024),
    )  # fmt: skip
    return outputs, last_h, last_c


def saved(a: Any) -> list[Tensor]:
    """Allocate what `forward` saves: steps, order of rows (empty: unchanged), their lengths, falling, and weights."""
    layer, new = layer_of(a), a.inputs[0].new_empty
    gates = new(layer.directions, layer.time, layer.batch, 4 * layer.cells, dtype=layer.wide)
    steps = allocate(layer, a.inputs[0], save=True, ragged=False)._replace(gates=gates)
    rows = new(0 if a.lengths is None else layer.batch, dtype=torch.int64), new(layer.batch, dtype=torch.int64)
    return [*steps, *rows, *copies_of(a)]


def forward(a: Any) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Return outputs, h and c, and with `save` what `saved` allocates."""
    layer, order = layer_of(a), None
    if a.lengths is None:
        falling = torch.full((layer.batch,), layer.time, device=a.inputs[0].device)
    else:
        falling, order = torch.sort(a.lengths.clamp(0, layer.time), descending=True, stable=True)
    steps = allocate(layer, a.inputs[0], a.save, a.lengths is not None)
    launch_to_step_order(layer, a.inputs, order, falling, steps.inputs)
    weight_ih, weight_hh, *rest = copies_of(a)
    bias = stacked(a.bias, torch.float32)
    steps = steps._replace(gates=inputs_half(layer, steps.inputs, weight_ih))
    masks = sorted_rows(torch.stack(a.masks), order) if a.masks else None
    for state, slots in ((a.h0, steps.hidden), (a.c0, steps.cells)):
        if state is None:
            slots.select(1, 0).zero_()
        else:
            slots.select(1, 0).copy_(sorted_rows(state, order))
    if a.save and a.h0 is not None and a.lengths is not None:
        # In W_hh's gradient a row without steps is multiplied by 0, and 0 times infinity is NaN.
        steps.hidden.select(1, 0).masked_fill_((falling == 0)[:, None], 0)
    scan(layer, steps, [weight_hh, bias, *rest], masks, falling, a.save)
    results = finish(layer, steps, a, order, falling, masks)
    if not a.save:
        return *results, []
    order = falling.new_empty(0) if order is None else order
    return *results, [*steps, order, falling, weight_ih, weight_hh, *rest]


implement("projected_lstm", forward, saved)
