"""The two kernels of a step of the projected LSTM: cells, then projection. All rows are in step order (docs/gpu.md)."""

import triton
import triton.language as tl

from elmo_fast.ops._kernels import tanh
from elmo_fast.ops.projected_lstm.kernels_order import clipped


@triton.jit
def pre_activation(product, bias, gates, within, inside, SAVE: tl.constexpr):
    """product + bias + what the inputs give (read from `gates`, and with SAVE written back there)."""
    product += tl.load(bias, mask=within, other=0.0)[None, :]
    product += tl.load(gates, mask=inside, other=0.0).to(tl.float32)
    if SAVE:
        tl.store(gates, product.to(gates.dtype.element_ty), mask=inside)
    return product


@triton.jit(do_not_specialize=["step"])
def cells(
    h, weight, bias, gates, c, hidden, masks, out, h_next, lengths, step, batch, time, size, count, c_slots, bound,
    SAVE: tl.constexpr, PROJECT: tl.constexpr, MASKED: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Step `step` of all rows and directions: gates, cell, and o·tanh(c) as the operand of the projection.

    h [R, T+1, B, D] operands, read at `step`; weight [R, 4H, D]; bias [R, 4H]; gates [R, T, B, 4H]: in, what the
    inputs give, out (SAVE) the pre-activations; c [R, c_slots, B, H] before its clip, read at `step`, written after it;
    hidden [R, B, H]. Without a projection the results go to out [R, T, B, D] and h_next = h at step + 1.
    Floor: 2·B·4H·D FLOP per direction, or W_hh (16.8 MB in 16 bit) once from L2 where B is small.
    """
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    cell = tl.program_id(0) * BC + tl.arange(0, BC)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    if tl.max(active.to(tl.int32)) == 0:
        return
    h += ((direction * (time + 1) + step) * batch + row)[:, None] * size
    weight += direction * 4 * count * size + cell.to(tl.int64)[None, :] * size
    gate = count * size
    i = tl.zeros((BM, BC), dtype=tl.float32)
    f = tl.zeros((BM, BC), dtype=tl.float32)
    g = tl.zeros((BM, BC), dtype=tl.float32)
    o = tl.zeros((BM, BC), dtype=tl.float32)
    for start in range(0, size, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(h + k[None, :], mask=active[:, None] & (k < size)[None, :], other=0.0)
        inside = (k < size)[:, None] & (cell < count)[None, :]
        at = weight + k[:, None]
        i = tl.dot(a, tl.load(at, mask=inside, other=0.0), i, input_precision="ieee")
        f = tl.dot(a, tl.load(at + gate, mask=inside, other=0.0), f, input_precision="ieee")
        g = tl.dot(a, tl.load(at + 2 * gate, mask=inside, other=0.0), g, input_precision="ieee")
        o = tl.dot(a, tl.load(at + 3 * gate, mask=inside, other=0.0), o, input_precision="ieee")

    inside = active[:, None] & (cell < count)[None, :]
    bias += direction * 4 * count + cell
    gates += ((direction * time + step) * batch + row)[:, None] * 4 * count + cell[None, :]
    at = row[:, None] * count + cell[None, :]
    # One gate after the other, so that few of them wait in registers beside the sums.
    i = pre_activation(i, bias, gates, cell < count, inside, SAVE)
    g = pre_activation(g, bias + 2 * count, gates + 2 * count, cell < count, inside, SAVE)
    after = tl.sigmoid(i) * tanh(g)
    f = pre_activation(f, bias + count, gates + count, cell < count, inside, SAVE)
    before = tl.load(c + (direction * c_slots + step % c_slots) * batch * count + at, mask=inside, other=0.0)
    after += tl.sigmoid(f) * tl.where(step == 0, before, clipped(before, bound))
    tl.store(c + (direction * c_slots + (step + 1) % c_slots) * batch * count + at, after, mask=inside)
    o = pre_activation(o, bias + 3 * count, gates + 3 * count, cell < count, inside, SAVE)
    value = tl.sigmoid(o) * tanh(clipped(after, bound))
    if PROJECT:
        tl.store(hidden + direction * batch * count + at, value.to(hidden.dtype.element_ty), mask=inside)
    else:
        tl.store(out + (direction * time + step) * batch * count + at, value, mask=inside)
        if MASKED:
            value *= tl.load(masks + direction * batch * count + at, mask=inside, other=0.0)
        value = tl.where(active[:, None], value, 0.0)
        within = (row < batch)[:, None] & (cell < count)[None, :]
        target = h_next + (direction * (time + 1) + step + 1) * batch * count + at
        tl.store(target, value.to(h_next.dtype.element_ty), mask=within)


@triton.jit
def sum_of_parts(acc, parts, arrived, at, inside, stride, SPLIT: tl.constexpr):
    """(sum of all parts in their order, whether this block was the last to arrive and so has it).

    Each of SPLIT blocks leaves its part; the one that counts to SPLIT adds them. The barrier lets no thread's store
    stay behind the counter's release; .cg reads past the L1, which is not coherent.
    """
    part = tl.program_id(2) % SPLIT
    tl.store(parts + part * stride + at, acc, mask=inside)
    tl.debug_barrier()
    is_last = tl.atomic_add(arrived, 1, sem="acq_rel") == SPLIT - 1
    if is_last:
        acc = tl.zeros_like(acc)
        for other in range(SPLIT):
            acc += tl.load(parts + other * stride + at, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(arrived, 0)
    return acc, is_last


@triton.jit(do_not_specialize=["step"])
def project(
    hidden, weight, masks, out, h, lengths, parts, arrived, step, batch, time, size, count, chunk, bound,
    MASKED: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Projection of step `step`: hidden [R, B, H] · weight [R, D, H]^T, each block over `chunk` of the cells.

    out [R, T, B, D] float32 before the clip; h [R, T+1, B, D] operands after clip and mask, written at step + 1 (0 for
    rows that have ended: the weight gradient's product reads them); parts [R·SPLIT, B, D]; arrived: a counter per tile.
    """
    direction, part = (tl.program_id(2) // SPLIT).to(tl.int64), tl.program_id(2) % SPLIT
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    within = (row < batch)[:, None] & (column < size)[None, :]
    at = row[:, None] * size + column[None, :]
    h += (direction * (time + 1) + step + 1) * batch * size + at
    if tl.max(active.to(tl.int32)) == 0:
        if part == 0:
            tl.store(h, tl.zeros((BM, BN), dtype=h.dtype.element_ty), mask=within)
        return
    hidden += (direction * batch + row)[:, None] * count
    weight += (direction * size + column)[None, :] * count
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    begin = part * chunk
    end = tl.minimum(count, begin + chunk)
    for start in range(begin, end, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(hidden + k[None, :], mask=active[:, None] & (k < end)[None, :], other=0.0)
        b = tl.load(weight + k[:, None], mask=(k < end)[:, None] & (column < size)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    is_last = True
    if SPLIT > 1:
        parts += direction * SPLIT * batch * size
        arrived += (direction * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
        acc, is_last = sum_of_parts(acc, parts, arrived, at, within, batch * size, SPLIT)
    if is_last:
        inside = active[:, None] & (column < size)[None, :]
        tl.store(out + (direction * time + step) * batch * size + at, acc, mask=inside)
        value = clipped(acc, bound)
        if MASKED:
            value *= tl.load(masks + direction * batch * size + at, mask=within, other=0.0)
        tl.store(h, tl.where(active[:, None], value, 0.0).to(h.dtype.element_ty), mask=within)
