"""AdaGrad in Triton: many tensors in few launches, rows merged by a sort, the clip read from the device, fixed order.

Memory bounds all kernels. A dense update moves 20 bytes per element (weight and accumulator read and written, gradient
read); a norm reads 4. A row update moves 16 bytes per element of a distinct row and 4 per element of an input row.
There is little arithmetic, so roots and quotients are the correctly rounded ones.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._triton import cdiv, ceil_power_of_two, implement, launch

# Tensors per launch. An ELMo has 37 dense ones, more than half of them cheaper than a launch; a table of
# their addresses on the device would take any number, but would have to be copied there for every new gradient.
SLOTS = 8
# Elements per program: 4 per thread in an update, 16 bytes of each of three tensors in flight; 32 per thread in a norm,
# which leaves 11 thousand partial sums of the 94 million elements for the one program that adds them.
UPDATE_BLOCK, NORM_BLOCK, TOTAL_BLOCK = 1024, 8192, 4096
# Sorted rows that one program adds, and how many of them it loads at a time.
PIECE, ROWS = 64, 8

# Several tensors share a launch: slot k holds the blocks from f<k> on. These numbers depend on the model and
# the batch, and are not specialized, so that no kernel is compiled again for them.
_FIRSTS = [f"f{k}" for k in range(1, 8)]
_SIZES = [f"n{k}" for k in range(8)]


@triton.jit
def _slot(block, f1, f2, f3, f4, f5, f6, f7, x0, x1, x2, x3, x4, x5, x6, x7):
    """Select the value of the slot that contains `block`: a choice of scalars, made once per program."""
    x = tl.where(block >= f1, x1, x0)
    x = tl.where(block >= f2, x2, x)
    x = tl.where(block >= f3, x3, x)
    x = tl.where(block >= f4, x4, x)
    x = tl.where(block >= f5, x5, x)
    x = tl.where(block >= f6, x6, x)
    return tl.where(block >= f7, x7, x)


@triton.jit
def _stepped(weight, sum, gradient, learning_rate):
    sum += gradient * gradient
    return weight - learning_rate * tl.div_rn(gradient, tl.sqrt_rn(sum)), sum


@triton.jit
def _finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def _update_block(w, a, g, offsets, n, factor, learning_rate, MASKED: tl.constexpr):
    inside = offsets < n if MASKED else None
    gradient = tl.load(g + offsets, mask=inside, other=0.0 if MASKED else None) * factor
    sum = tl.load(a + offsets, mask=inside, other=1.0 if MASKED else None)
    weight = tl.load(w + offsets, mask=inside, other=0.0 if MASKED else None)
    weight, sum = _stepped(weight, sum, gradient, learning_rate)
    tl.store(a + offsets, sum, mask=inside)
    tl.store(w + offsets, weight, mask=inside)


@triton.jit(do_not_specialize=[*_FIRSTS, *_SIZES])
def adagrad_update_kernel(
    scale, rate, f1, f2, f3, f4, f5, f6, f7,
    n0, n1, n2, n3, n4, n5, n6, n7,
    w0, w1, w2, w3, w4, w5, w6, w7,
    a0, a1, a2, a3, a4, a5, a6, a7,
    g0, g1, g2, g3, g4, g5, g6, g7,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Update one of eight tensors: a += (s g)²; w -= lr s g / √a.

    One program per BLOCK elements. Whole blocks need no mask: one for a size that is no multiple of four would cost the
    16-byte accesses.
    """
    factor = 1.0
    if scale is not None:
        factor = tl.load(scale)
        # The clip's scale is NaN if the norm is not finite: this step is skipped.
        if not _finite(factor):
            return
    learning_rate = tl.load(rate)
    block = tl.program_id(0)
    first = _slot(block, f1, f2, f3, f4, f5, f6, f7, 0, f1, f2, f3, f4, f5, f6, f7)
    n = _slot(block, f1, f2, f3, f4, f5, f6, f7, n0, n1, n2, n3, n4, n5, n6, n7)
    w = _slot(block, f1, f2, f3, f4, f5, f6, f7, w0, w1, w2, w3, w4, w5, w6, w7)
    a = _slot(block, f1, f2, f3, f4, f5, f6, f7, a0, a1, a2, a3, a4, a5, a6, a7)
    g = _slot(block, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7)
    start = (block - first).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        _update_block(w, a, g, offsets, n, factor, learning_rate, False)
    else:
        _update_block(w, a, g, offsets, n, factor, learning_rate, True)


@triton.jit(do_not_specialize=["at", *_FIRSTS, *_SIZES])
def adagrad_square_norm_partial_sums_kernel(
    sums, at, f1, f2, f3, f4, f5, f6, f7,
    n0, n1, n2, n3, n4, n5, n6, n7,
    x0, x1, x2, x3, x4, x5, x6, x7,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute sums[at + block], the sum of squares of BLOCK elements of one of eight tensors."""
    block = tl.program_id(0)
    first = _slot(block, f1, f2, f3, f4, f5, f6, f7, 0, f1, f2, f3, f4, f5, f6, f7)
    n = _slot(block, f1, f2, f3, f4, f5, f6, f7, n0, n1, n2, n3, n4, n5, n6, n7)
    x = _slot(block, f1, f2, f3, f4, f5, f6, f7, x0, x1, x2, x3, x4, x5, x6, x7)
    start = (block - first).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        values = tl.load(x + offsets)
    else:
        values = tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(sums + at + block, tl.sum(values * values))


@triton.jit(do_not_specialize=["count"])
def adagrad_square_norm_total_kernel(sums, count, out, BLOCK: tl.constexpr):
    """Add sums[count] into out[], in float64 and a fixed order; one program, because there are few partial sums."""
    lanes = tl.arange(0, BLOCK)
    kept = tl.zeros([BLOCK], tl.float64)
    for start in range(0, count, BLOCK):
        kept += tl.load(sums + start + lanes, mask=lanes < count - start, other=0.0).to(tl.float64)
    tl.store(out, tl.sum(kept).to(out.dtype.element_ty))


@triton.jit
def _run(
    sum, first, end, live, id, ids, order, rows, columns, count,
    D: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add to sum [HEADS, COLUMNS], for each live head, rows first, first + 1, .. while ids[STRIDE nth] is its id.

    ROWS at a time, so that as many loads are in flight. Row nth is order[nth] or, without an order, nth itself.
    """
    more = tl.max(live.to(tl.int32), 0) > 0
    while more:
        nth = first[:, None] + tl.arange(0, ROWS)[None, :]
        inside = live[:, None] & (nth < end[:, None])
        same = inside & (tl.load(ids + nth * STRIDE, mask=inside, other=-1) == id[:, None])
        if order is None:
            row = tl.where(same, nth, -1).to(tl.int64)
        else:
            row = tl.load(order + nth, mask=same, other=-1).to(tl.int64)
        taken = ((row >= 0) & (row < count))[:, :, None] & (columns < D)[None, None, :]
        sum += tl.sum(tl.load(rows + row[:, :, None] * D + columns[None, None, :], mask=taken, other=0.0), 1)
        first += ROWS
        live = tl.sum(same.to(tl.int32), 1) == ROWS
        more = tl.max(live.to(tl.int32), 0) > 0
    return sum


@triton.jit
def _merged(
    i, heads, id, ids, order, rows, pieces, columns, n,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Sum all rows of each segment that begins at a position i, [HEADS, COLUMNS].

    `adagrad_rows_sum_pieces_kernel` has already summed its pieces after the first.
    """
    sum = tl.zeros([HEADS, COLUMNS], tl.float32)
    end = tl.minimum(n, (i // PIECE + 1) * PIECE)
    sum = _run(sum, i, end, heads, id, ids, order, rows, columns, n, D, 1, ROWS)
    count = tl.cdiv(n, PIECE)
    ends = tl.zeros([HEADS], tl.int32) + count
    return _run(sum, i // PIECE + 1, ends, heads, id, ids, None, pieces, columns, count, D, PIECE, ROWS)


@triton.jit
def _heads(i, ids, n, num_words):
    """Return the ids at positions i, and whether each is the first of its id and a word of the table."""
    id = tl.load(ids + i, mask=i < n, other=-1)
    before = tl.load(ids + i - 1, mask=(i > 0) & (i < n), other=-1)
    return id, (id >= 0) & (id < num_words) & (before != id)


@triton.jit(do_not_specialize=["n"])
def adagrad_rows_sum_pieces_kernel(
    ids, order, rows, pieces, n,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Compute pieces[p], the sum of the rows from position p PIECE on, if the segment there began earlier.

    So many programs, not just its head's, sum a frequent word (of 40,960 targets one in twenty is the same).
    """
    piece = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    i = piece * PIECE
    id = tl.load(ids + i, mask=i < n, other=-1)
    before = tl.load(ids + i - 1, mask=(i > 0) & (i < n), other=-1)
    live = (id >= 0) & (before == id)
    if tl.max(live.to(tl.int32), 0) == 0:
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    sum = tl.zeros([HEADS, COLUMNS], tl.float32)
    sum = _run(sum, i, tl.minimum(n, i + PIECE), live, id, ids, order, rows, columns, n, D, 1, ROWS)
    place = piece.to(tl.int64)[:, None] * D + columns[None, :]
    tl.store(pieces + place, sum, mask=live[:, None] & (columns < D)[None, :])


@triton.jit(do_not_specialize=["n", "num_words"])
def adagrad_rows_update_kernel(
    ids, order, rows, pieces, table, accumulator, scale, rate, n, num_words,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Update the rows of table and accumulator whose ids begin at HEADS sorted positions.

    Where none begins, nothing is read.
    """
    factor = 1.0
    if scale is not None:
        factor = tl.load(scale)
        if not _finite(factor):
            return
    learning_rate = tl.load(rate)
    i = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    id, heads = _heads(i, ids, n, num_words)
    if tl.max(heads.to(tl.int32), 0) == 0:
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    gradient = factor * _merged(i, heads, id, ids, order, rows, pieces, columns, n, D, PIECE, ROWS, COLUMNS, HEADS)
    place = id.to(tl.int64)[:, None] * D + columns[None, :]
    inside = heads[:, None] & (columns < D)[None, :]
    sum = tl.load(accumulator + place, mask=inside, other=1.0)
    weight = tl.load(table + place, mask=inside, other=0.0)
    weight, sum = _stepped(weight, sum, gradient, learning_rate)
    tl.store(accumulator + place, sum, mask=inside)
    tl.store(table + place, weight, mask=inside)


@triton.jit(do_not_specialize=["n", "num_words"])
def adagrad_rows_square_norm_partial_sums_kernel(
    ids, order, rows, pieces, sums, n, num_words,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """Compute sums[program, chunk], the sum of squares of the rows that `adagrad_rows_update_kernel` squares there."""
    at = sums + tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    i = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    id, heads = _heads(i, ids, n, num_words)
    if tl.max(heads.to(tl.int32), 0) == 0:
        tl.store(at, 0.0)
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    sum = _merged(i, heads, id, ids, order, rows, pieces, columns, n, D, PIECE, ROWS, COLUMNS, HEADS)
    tl.store(at, tl.sum(sum * sum))


def tiles(width: int) -> tuple[int, int]:
    """Return (columns, heads) of a program of four warps on rows of `width`: a whole row, or 32 of a bias.

    A thread holds 16 bytes of each of ROWS rows if the rows are that wide.
    """
    columns = ceil_power_of_two(width, 1, 512)
    return columns, max(1, min(32, 128 // columns))


def _groups(block: int, *lists: Sequence[Tensor]) -> list[tuple[int, list[int], list[int], list[Tensor]]]:
    """Return per launch: number of blocks, first block of slots 1.., elements of slots 0.., tensors list by list.

    Empty tensors have no block. An unused slot begins after the last block.
    """
    filled = [each for each in zip(*lists, strict=True) if each[0].numel()]
    groups = []
    for start in range(0, len(filled), SLOTS):
        some = filled[start : start + SLOTS]
        ends = list(accumulate(cdiv(each[0].numel(), block) for each in some))
        unused = SLOTS - len(some)
        firsts = ends[:-1] + unused * ends[-1:]
        some += unused * some[:1]
        sizes = [each[0].numel() for each in some]
        groups.append((ends[-1], firsts, sizes, [tensor for column in zip(*some, strict=True) for tensor in column]))
    return groups


def _update(a: Any) -> None:
    gradients = [gradient.contiguous() for gradient in a.gradients]
    for blocks, firsts, sizes, tensors in _groups(UPDATE_BLOCK, a.parameters, a.accumulators, gradients):
        launch(
            adagrad_update_kernel, (blocks,), a.scale, a.learning_rate, *firsts, *sizes, *tensors,
            num_warps=8, BLOCK=UPDATE_BLOCK,
        )  # fmt: skip
    torch.autograd.graph.increment_version([*a.parameters, *a.accumulators])


def _square_norm(a: Any) -> Tensor:
    tensors = [tensor.contiguous() for tensor in a.tensors]
    groups = _groups(NORM_BLOCK, tensors)
    count = sum(blocks for blocks, *_ in groups)
    sums, at = tensors[0].new_empty(count), 0
    for blocks, firsts, sizes, some in groups:
        launch(
            adagrad_square_norm_partial_sums_kernel, (blocks,),
            sums, at, *firsts, *sizes, *some, num_warps=8, BLOCK=NORM_BLOCK,
        )  # fmt: skip
        at += blocks
    return _total(sums)


def _total(sums: Tensor) -> Tensor:
    out = sums.new_empty(())
    launch(adagrad_square_norm_total_kernel, (1,), sums, sums.numel(), out, num_warps=16, BLOCK=TOTAL_BLOCK)
    return out


def _pieces(ids: Tensor, positions: Tensor, rows: Tensor) -> tuple[tuple[Tensor, ...], dict[str, int], tuple[int, int]]:
    """Sum the pieces of long segments after their first; return tensors, tile and grid of the kernel that reads them.

    The tensors are ids, positions, rows and these sums, in the memory layout that kernels read.
    """
    n, width = rows.shape[0], rows.shape[1:].numel()
    ids, positions, rows = ids.contiguous(), positions.contiguous(), rows.reshape(n, width).contiguous()
    columns, heads = tiles(width)
    tile = {"D": width, "PIECE": PIECE, "ROWS": ROWS, "COLUMNS": columns, "HEADS": heads}
    count, chunks = cdiv(n, PIECE), cdiv(width, columns)
    pieces = rows.new_empty(count, width)
    launch(adagrad_rows_sum_pieces_kernel, (cdiv(count, heads), chunks), ids, positions, rows, pieces, n, **tile)
    return (ids, positions, rows, pieces), tile, (cdiv(n, heads), chunks)


def _update_rows(a: Any) -> None:
    sorted_rows, tile, grid = _pieces(a.ids, a.positions, a.rows)
    arguments = (a.table, a.accumulator, a.scale, a.learning_rate, len(a.rows), a.table.shape[0])
    launch(adagrad_rows_update_kernel, grid, *sorted_rows, *arguments, **tile)
    torch.autograd.graph.increment_version([a.table, a.accumulator])


def _merged_square_norm(a: Any) -> Tensor:
    sorted_rows, tile, grid = _pieces(a.ids, a.positions, a.rows)
    sums = a.rows.new_empty(grid)
    launch(adagrad_rows_square_norm_partial_sums_kernel, grid, *sorted_rows, sums, len(a.rows), a.num_words, **tile)
    return _total(sums)


implement("adagrad_", _update)
implement("adagrad_rows_", _update_rows)
implement("square_norm", _square_norm)
implement("merged_square_norm", _merged_square_norm)
