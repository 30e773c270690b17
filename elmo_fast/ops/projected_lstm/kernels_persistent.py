"""All steps of a layer in one launch, weights on chip: for few rows (docs/gpu.md, "The persistent scan").

Every block is resident (a cooperative launch), owns some cells and a tile of W_hr, and waits for others at counters in
global memory that only grow. No wait is for ever: a block that has looked `polls` times gives up. It then waits no more
and is counted no more, and all that it writes is NaN: whoever reads it gets the right number or NaN, never a wrong one.
"""

import triton
import triton.language as tl

from elmo_fast.ops._kernels import tanh
from elmo_fast.ops.projected_lstm.kernels_arrival import arrive, wait
from elmo_fast.ops.projected_lstm.kernels_order import clipped


@triton.jit
def gates_apart(x, BC: tl.constexpr, BM: tl.constexpr):
    """The four gates [BC, BM] of rows ordered as `persistent` orders them: in each thread's registers, on wgmma."""
    x = tl.permute(tl.reshape(x, (2, BC // 8, 2, 8, BM)), (1, 3, 4, 0, 2))
    first, second = tl.split(x)
    i, g = tl.split(first)
    f, o = tl.split(second)
    return tl.reshape(i, (BC, BM)), tl.reshape(f, (BC, BM)), tl.reshape(g, (BC, BM)), tl.reshape(o, (BC, BM))


@triton.jit(do_not_specialize=["start", "stop", "direction"])
def persistent(
    h, weight_hh, bias, gates, c, hidden, weight_hr, masks, out, parts, counters, lengths, failed,
    start, stop, direction, batch, time, size, count, c_slots, cell_bound, bound, polls,
    BARRIER: tl.constexpr, PHASE: tl.constexpr, SAVE: tl.constexpr, MASKED: tl.constexpr, TILES: tl.constexpr,
    SLICES: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, QUARTER: tl.constexpr,
    SHARE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Steps start .. stop - 1 of all rows, a direction per program_id(1), as `cells` and `project` compute them.

    h [R, T+1, B, D] operands; weight_hh [R, 4H, D]; bias [R, 4H]; gates [R, T, B, 4H]; c [R, c_slots, B, H] before its
    clip; hidden [R, B, H] operands; weight_hr [R, D, H]; out [R, T, B, D] before the clip; parts [R, SLICES, B, D];
    counters [R, SLICES + TILES + 1, 32] int32, 0 at first; failed [1]: made 1 by a block that gives up.
    BARRIER=False runs phase PHASE alone, for the interpreter: start, stop = one step, each phase a launch.

    A step has three phases. 0: gates and cells, weights as the M side of the product (128 x BM) so that few rows fill
    wgmma. 1: each block's tile of the projection over its slice of the cells. 2: the parts' sum, in order, each block
    a share; clip, mask, next h. Each ends in a wait for those blocks alone whose numbers come next: owners of the
    slice's cells, blocks of the tile, all. For 4096 cells and 512 columns (8 tiles, 16 slices), per step and row of BM:
    128 KiB of h to all blocks, 64 KiB of hidden, 32 KiB of parts written and read, all in the L2, none of the weights.
    Estimated, measured by nobody: at BM = 32 about 8 MiB or 1.5 us of the L2's rate, 0.6 us for the 160 KiB of weights
    at the rate of shared memory, and three barriers of 0.7 to 1.2 us each, which is most of it.
    """
    nan = float("nan")
    block = tl.program_id(0)
    direction = (direction + tl.program_id(1)).to(tl.int64)
    row = tl.arange(0, BM)
    length = tl.load(lengths + row, mask=row < batch, other=0).to(tl.int32)
    end = tl.minimum(stop, tl.max(length))
    # Phase 0: cells [block·BC, +BC); rows of the product in an order that leaves all gates of a cell to one thread.
    cell = block * BC + tl.arange(0, BC)
    m = tl.arange(0, 4 * BC)
    cell_of = tl.max_contiguous(tl.multiple_of(block * BC + (m % (2 * BC)) // 16 * 8 + m % 8, 8), 8)
    gate_row = tl.max_contiguous((m // (2 * BC) * 2 + m // 8 % 2) * count + cell_of, 8)
    owned = cell_of < count
    # Phase 1: columns [tile·BN, +BN) of the projection, over the cells [slice·BK, +BK).
    tile, slice = block % TILES, block // TILES
    column = tile * BN + tl.arange(0, BN)
    k = slice * BK + tl.arange(0, BK)
    columns = tl.where(slice < SLICES, size, 0)
    # Phase 2: SHARE of the tile's BM·BN sums; none for blocks past the last slice.
    e = slice * SHARE + tl.arange(0, SHARE)
    share_row, share_column = e // BN, tile * BN + e % BN
    within = (e < BM * BN) & (share_row < batch) & (share_column < size)
    share_at = share_row * size + share_column
    share_length = tl.load(lengths + share_row, mask=within, other=0).to(tl.int32)
    h += (direction * (time + 1) + start) * batch * size
    out += (direction * time + start) * batch * size
    hidden += direction * batch * count
    parts += direction * SLICES * batch * size
    counters += direction * (SLICES + TILES + 1) * 32
    of_slice, of_tile, of_all = counters, counters + SLICES * 32, counters + (SLICES + TILES) * 32

    # A barrier after each tile of the weights keeps the compiler from holding all of them in registers at once.
    d = tl.arange(0, QUARTER)
    if BARRIER or PHASE == 0:
        at = weight_hh + (direction * 4 * count + gate_row)[:, None] * size + d[None, :]
        w0 = tl.load(at, mask=owned[:, None] & (d < size)[None, :], other=0.0)
        tl.debug_barrier()
        w1 = tl.load(at + QUARTER, mask=owned[:, None] & (d + QUARTER < size)[None, :], other=0.0)
        tl.debug_barrier()
        w2 = tl.load(at + 2 * QUARTER, mask=owned[:, None] & (d + 2 * QUARTER < size)[None, :], other=0.0)
        tl.debug_barrier()
        w3 = tl.load(at + 3 * QUARTER, mask=owned[:, None] & (d + 3 * QUARTER < size)[None, :], other=0.0)
        tl.debug_barrier()
    if BARRIER or PHASE == 1:
        at = weight_hr + (direction * size + column)[:, None] * count + k[None, :]
        w_hr = tl.load(at, mask=(column < size)[:, None] & (k < count)[None, :], other=0.0)
        tl.debug_barrier()
    if BARRIER or PHASE == 0:
        b = tl.load(bias + direction * 4 * count + gate_row, mask=owned, other=0.0)
        gates += (direction * time + start) * batch * 4 * count
        gate_at = row[None, :] * 4 * count + gate_row[:, None]
        x = tl.load(gates + gate_at, mask=owned[:, None] & (length[None, :] > start), other=0.0)
        c += direction * c_slots * batch * count + row[None, :] * count + cell[:, None]
        before = tl.load(
            c + (start % c_slots).to(tl.int64) * batch * count,
            mask=(cell < count)[:, None] & (length > start)[None, :],
            other=0.0,
        )
    if MASKED:
        mask = tl.load(masks + direction * batch * size + share_at, mask=within, other=0.0)

    ok = True
    for step in range(start, end):
        turn = step - start + 1
        poison = tl.where(ok, 0.0, nan)
        if BARRIER or PHASE == 0:
            source = h + (row[None, :] * size + d[:, None])
            active = length[None, :] > step
            h0 = tl.load(source, mask=active & (d < size)[:, None], other=0.0, cache_modifier=".cg")
            h1 = tl.load(source + QUARTER, mask=active & (d + QUARTER < size)[:, None], other=0.0, cache_modifier=".cg")
            h2 = tl.load(
                source + 2 * QUARTER, mask=active & (d + 2 * QUARTER < size)[:, None], other=0.0, cache_modifier=".cg"
            )
            h3 = tl.load(
                source + 3 * QUARTER, mask=active & (d + 3 * QUARTER < size)[:, None], other=0.0, cache_modifier=".cg"
            )
            acc = tl.dot(w0, h0)
            acc = tl.dot(w1, h1, acc)
            acc = tl.dot(w2, h2, acc)
            acc = tl.dot(w3, h3, acc)
            acc += (b + poison)[:, None] + x.to(tl.float32)
            if SAVE:
                tl.store(gates + gate_at, acc.to(gates.dtype.element_ty), mask=owned[:, None] & active)
            i, f, g, o = gates_apart(acc, BC, BM)
            kept = tl.where(step == 0, before, clipped(before, cell_bound))
            before = tl.fma(tl.sigmoid(f), kept, tl.sigmoid(i) * tanh(g))
            present = (cell < count)[:, None] & active
            tl.store(c + ((step + 1) % c_slots).to(tl.int64) * batch * count, before, mask=present)
            value = tl.sigmoid(o) * tanh(clipped(before, cell_bound))
            tl.store(hidden + row[None, :] * count + cell[:, None], value.to(hidden.dtype.element_ty), mask=present)
        if BARRIER:
            if block * BC < count:
                arrive(of_slice + block * BC // BK * 32, ok)
            if slice < SLICES:
                owners = (tl.minimum(BK, count - slice * BK) + BC - 1) // BC
                ok = wait(of_slice + slice * 32, turn * owners, polls, ok)
        if BARRIER or PHASE == 1:
            source = hidden + row[None, :] * count + k[:, None]
            a = tl.load(source, mask=(length[None, :] > step) & (k < count)[:, None], other=0.0, cache_modifier=".cg")
            part = tl.dot(w_hr, a) + tl.where(ok, 0.0, nan)
            present = (row < batch)[None, :] & (column < columns)[:, None]
            tl.store(parts + (slice * batch + row)[None, :] * size + column[:, None], part, mask=present)
        if BARRIER:  # noqa: SIM102  (the outer one is a constexpr)
            if slice < SLICES:
                arrive(of_tile + tile * 32, ok)
                ok = wait(of_tile + tile * 32, turn * SLICES, polls, ok)
        if BARRIER or PHASE == 2:
            each = tl.arange(0, PARTS)[:, None]
            source = parts + each * batch * size + share_at[None, :]
            total = tl.load(source, mask=(each < SLICES) & within[None, :], other=0.0, cache_modifier=".cg")
            total = tl.sum(total, axis=0) + tl.where(ok, 0.0, nan)
            tl.store(out + share_at, total, mask=within & (share_length > step))
            after = clipped(total, bound)
            if MASKED:
                after *= mask
            after = tl.where(share_length > step, after, 0.0)
            tl.store(h + batch * size + share_at, after.to(h.dtype.element_ty), mask=within)
        if BARRIER:
            arrive(of_all, ok)
            inside = owned[:, None] & (length[None, :] > step + 1)
            gates += batch * 4 * count
            x = tl.load(gates + gate_at, mask=inside, other=0.0)
            ok = wait(of_all, turn * tl.num_programs(0), polls, ok)
            h += batch * size
            out += batch * size
    if BARRIER or PHASE == 2:
        for _ in range(tl.maximum(start, end), stop):
            nothing = tl.zeros((SHARE,), dtype=h.dtype.element_ty)
            tl.store(h + batch * size + share_at, nothing, mask=within)
            h += batch * size
    if BARRIER:
        tl.store(failed, 1, mask=ok == 0)
