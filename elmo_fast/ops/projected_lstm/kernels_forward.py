"""The two kernels of a step of the projected LSTM: cells, then projection. All rows are in step order (docs/gpu.md)."""

import triton
import triton.language as tl

from elmo_fast.ops._kernels import after_previous, plus_product, tanh
from elmo_fast.ops.projected_lstm.kernels_order import clipped

# Triton's interpreter has no assembly.
ASSEMBLY = tl.constexpr(not triton.knobs.runtime.interpret)


@triton.jit
def approximate(x, NAME: tl.constexpr):
    """ex2 (2^x), rcp (1/x) or tanh by one instruction, to 2^-22, 2^-23 or 2^-11 (PTX ISA); interpreted, exact."""
    if ASSEMBLY:
        code: tl.constexpr = NAME + (".approx.f32 $0, $1;" if NAME == "tanh" else ".approx.ftz.f32 $0, $1;")
        return tl.inline_asm_elementwise(code, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    if NAME == "tanh":
        return tanh(x)
    return tl.exp2(x) if NAME == "ex2" else 1.0 / x


@triton.jit
def gate(x, dtype: tl.constexpr):
    """σ(x), as exact as operands of `dtype` deserve, without a division for 16 bits.

    2^-11 is a quarter of what bfloat16 rounds by; float16 rounds by no more than that, so tanh.approx is not for it.
    """
    if dtype == tl.bfloat16:
        return tl.fma(approximate(0.5 * x, "tanh"), 0.5, 0.5)
    if dtype == tl.float16:
        return approximate(1.0 + approximate(x * -1.4426950408889634, "ex2"), "rcp")
    return tl.sigmoid(x)


@triton.jit
def squash(x, dtype: tl.constexpr):
    """tanh(x), as exact as `gate`."""
    if dtype == tl.bfloat16:
        return approximate(x, "tanh")
    if dtype == tl.float16:
        return tl.fma(approximate(1.0 + approximate(x * 2.8853900817779268, "ex2"), "rcp"), -2.0, 1.0)
    return tanh(x)


@triton.jit
def pre_activation(product, bias, gates, within, inside, SAVE: tl.constexpr):
    """product + bias + what the inputs give (read from `gates`, and with SAVE written back there)."""
    product += tl.load(bias, mask=within, other=0.0)[None, :]
    product += tl.load(gates, mask=inside, other=0.0).to(tl.float32)
    if SAVE:
        tl.store(gates, product.to(gates.dtype.element_ty), mask=inside)
    return product


@triton.jit
def halves(x, BM: tl.constexpr, BC: tl.constexpr):
    """The columns of x [BM, BC] as two tensors [BM, BC // 2]."""
    return tl.split(tl.permute(tl.reshape(x, (BM, 2, BC // 2)), (0, 2, 1)))


@triton.jit
def quarters(x, BM: tl.constexpr, BC: tl.constexpr):
    """The gates i, f, g and o [BM, BC] of x [BM, 4 BC], whose columns are (i and f or g and o, cell, which of both).

    A thread that holds one gate of a cell holds all of them, so nothing moves.
    """
    x = tl.permute(tl.reshape(x, (BM, 2, BC, 2)), (0, 2, 1, 3))
    ig, fo = tl.split(x)
    i, g = tl.split(ig)
    f, o = tl.split(fo)
    return i, f, g, o


@triton.jit
def update_cells(
    i, f, g, o, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound, first,
    SAVE: tl.constexpr, PROJECT: tl.constexpr, MASKED: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """update for cells from `first` on, in pieces of 1,024 or 16 columns: all addresses at once would spill."""
    if BM * BC > 1024 and BC > 16:
        i0, i1 = halves(i, BM, BC)
        f0, f1 = halves(f, BM, BC)
        g0, g1 = halves(g, BM, BC)
        o0, o1 = halves(o, BM, BC)
        update_cells(
            i0, f0, g0, o0, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound,
            first, SAVE, PROJECT, MASKED, BM, BC // 2,
        )  # fmt: skip
        update_cells(
            i1, f1, g1, o1, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound,
            first + BC // 2, SAVE, PROJECT, MASKED, BM, BC // 2,
        )  # fmt: skip
    else:
        row = tl.program_id(1) * BM + tl.arange(0, BM)
        cell = first + tl.arange(0, BC)
        active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
        inside = active[:, None] & (cell < count)[None, :]
        dtype: tl.constexpr = h_next.dtype.element_ty
        bias += cell
        gates += row[:, None] * 4 * count + cell[None, :]
        at = row[:, None] * count + cell[None, :]
        # One gate after the other, so that few of them wait in registers beside the sums.
        i = pre_activation(i, bias, gates, cell < count, inside, SAVE)
        g = pre_activation(g, bias + 2 * count, gates + 2 * count, cell < count, inside, SAVE)
        after = gate(i, dtype) * squash(g, dtype)
        f = pre_activation(f, bias + count, gates + count, cell < count, inside, SAVE)
        held = tl.load(before + at, mask=inside, other=0.0)
        after = tl.fma(gate(f, dtype), tl.where(step == 0, held, clipped(held, bound)), after)
        tl.store(c + at, after, mask=inside)
        o = pre_activation(o, bias + 3 * count, gates + 3 * count, cell < count, inside, SAVE)
        value = gate(o, dtype) * squash(clipped(after, bound), dtype)
        if PROJECT:
            tl.store(hidden + at, value.to(hidden.dtype.element_ty), mask=inside)
        else:
            tl.store(out + at, value, mask=inside)
            if MASKED:
                value *= tl.load(masks + at, mask=inside, other=0.0)
            value = tl.where(active[:, None], value, 0.0)
            within = (row < batch)[:, None] & (cell < count)[None, :]
            tl.store(h_next + at, value.to(h_next.dtype.element_ty), mask=within)


@triton.jit(do_not_specialize=["step"])
def cells(
    h, weight, bias, gates, c, hidden, masks, out, h_next, lengths, step, batch, time, size, count, c_slots, bound,
    SAVE: tl.constexpr, PROJECT: tl.constexpr, MASKED: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Step `step` of all rows and directions: gates, cell, and o·tanh(c) as the operand of the projection.

    h [R, T+1, B, D] operands, read at `step`; weight [R, 4H, D]; bias [R, 4H]; gates [R, T, B, 4H]: in, what the
    inputs give, out (SAVE) the pre-activations; c [R, c_slots, B, H] before its clip, read at `step`, written after it;
    hidden [R, B, H]. Without a projection the results go to out [R, T, B, D] and h_next = h at step + 1.
    Floor: 2·B·4H·D FLOP per direction, or W_hh (16.8 MB in 16 bit) once from L2 where B is small.
    """
    after_previous()
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    if tl.max(active.to(tl.int32)) == 0:
        return
    h += ((direction * (time + 1) + step) * batch + row)[:, None] * size
    # One product of all four gates: of several with the same rows Triton would give each warp 16 rows of every column.
    n = tl.arange(0, 4 * BC)
    gate, cell = n // (2 * BC) * 2 + n % 2, tl.program_id(0) * BC + n % (2 * BC) // 2
    weight += direction * 4 * count * size + (gate * count + cell).to(tl.int64)[None, :] * size
    product = tl.zeros((BM, 4 * BC), dtype=tl.float32)
    for start in range(0, size, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(h + k[None, :], mask=active[:, None] & (k < size)[None, :], other=0.0)
        b = tl.load(weight + k[:, None], mask=(k < size)[:, None] & (cell < count)[None, :], other=0.0)
        product = plus_product(product, a, b, PRECISION)
    i, f, g, o = quarters(product, BM, BC)

    bias += direction * 4 * count
    gates += (direction * time + step) * batch * 4 * count
    before = c + (direction * c_slots + step % c_slots) * batch * count
    c += (direction * c_slots + (step + 1) % c_slots) * batch * count
    hidden += direction * batch * count
    if not PROJECT:
        out += (direction * time + step) * batch * count
        h_next += (direction * (time + 1) + step + 1) * batch * count
        if MASKED:
            masks += direction * batch * count
    first = tl.program_id(0) * BC
    update_cells(
        i, f, g, o, bias, gates, before, c, hidden, masks, out, h_next, lengths, step, batch, count, bound, first,
        SAVE, PROJECT, MASKED, BM, BC,
    )  # fmt: skip


@triton.jit
def leave_part(acc, parts, arrived, part, at, within, stride, SPLIT: tl.constexpr):
    """Store this block's part of a tile's sum; return (first, last), the shares of its rows that this block adds up.

    The last of the SPLIT blocks to arrive adds all shares, always in the order of the parts, and clears the counter;
    the others add none. Every part is written before its block counts (acq_rel), and is read past the L1, which is not
    coherent (`sum_of_parts`).
    """
    tl.store(parts + part * stride + at, acc, mask=within)
    tl.debug_barrier()
    is_last = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == SPLIT - 1
    tl.debug_barrier()
    tl.store(arrived, 0, mask=is_last)
    return 0, tl.where(is_last, SPLIT, 0)


@triton.jit
def sum_of_parts(parts, at, inside, stride, SPLIT: tl.constexpr):
    """Add the parts of a share in their order, whichever block does it."""
    total = tl.zeros(at.shape, dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * stride + at, mask=inside, other=0.0, cache_modifier=".cg")
    return total


@triton.jit
def finish_projection(
    acc, row, column, masks, out, h, lengths, step, batch, size, bound, MASKED: tl.constexpr
):  # fmt: skip
    """The projections of some rows, before the clip to `out`, after it and the mask to `h` (0 for rows that ended)."""
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    within = (row < batch)[:, None] & (column < size)[None, :]
    at = row[:, None] * size + column[None, :]
    tl.store(out + at, acc, mask=active[:, None] & within)
    value = clipped(acc, bound)
    if MASKED:
        value *= tl.load(masks + at, mask=within, other=0.0)
    tl.store(h + at, tl.where(active[:, None], value, 0.0).to(h.dtype.element_ty), mask=within)


@triton.jit(do_not_specialize=["step"])
def project(
    hidden, weight, masks, out, h, lengths, parts, arrived, step, batch, time, size, count, chunk, bound,
    MASKED: tl.constexpr, SPLIT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Projection of step `step`: hidden [R, B, H] · weight [R, D, H]^T, each block over `chunk` of the cells.

    out [R, T, B, D] float32 before the clip; h [R, T+1, B, D] operands after clip and mask, written at step + 1 (0 for
    rows that have ended: the weight gradient's product reads them); parts [R·SPLIT, B, D]; arrived: a counter per tile,
    0 at first and afterwards.
    """
    after_previous()
    direction, part = (tl.program_id(2) // SPLIT).to(tl.int64), tl.program_id(2) % SPLIT
    top = tl.program_id(1) * BM
    row = top + tl.arange(0, BM)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    active = (row < batch) & (tl.load(lengths + row, mask=row < batch, other=0) > step)
    within = (row < batch)[:, None] & (column < size)[None, :]
    at = row[:, None] * size + column[None, :]
    h += (direction * (time + 1) + step + 1) * batch * size
    if tl.max(active.to(tl.int32)) == 0:
        if part == 0:
            tl.store(h + at, tl.zeros((BM, BN), dtype=h.dtype.element_ty), mask=within)
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
        acc = plus_product(acc, a, b, PRECISION)
    out += (direction * time + step) * batch * size
    if MASKED:
        masks += direction * batch * size
    if SPLIT == 1:
        finish_projection(acc, row, column, masks, out, h, lengths, step, batch, size, bound, MASKED)
    else:
        parts += direction * SPLIT * batch * size
        arrived += (direction * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
        first, last = leave_part(acc, parts, arrived, part, at, within, batch * size, SPLIT)
        share_rows: tl.constexpr = BM // SPLIT
        for share in range(first, last):
            own = top + share * share_rows + tl.arange(0, share_rows)
            there = own[:, None] * size + column[None, :]
            inside = (own < batch)[:, None] & (column < size)[None, :]
            total = sum_of_parts(parts, there, inside, batch * size, SPLIT)
            finish_projection(total, own, column, masks, out, h, lengths, step, batch, size, bound, MASKED)
