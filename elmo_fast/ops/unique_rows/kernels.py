"""unique_rows in Triton: sort rows by a 56-bit hash, compare each in full with the one before; no host sync."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._kernels import segment_sum
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, implement, launch

HASH_BITS = 56  # with the 7 bits of the length above them, the sort keys stay positive


@triton.jit
def _mixed(x):
    """Map 64 bits by a bijection after which every bit depends on every bit (multiply and shift, twice)."""
    x = (x ^ (x >> 32)) * 0x1B873593CC9E2D51
    x = (x ^ (x >> 29)) * 0x2545F4914F6CDD1D
    return x ^ (x >> 32)


@triton.jit
def unique_rows_sort_keys_kernel(
    ids, row_stride, column_stride, out, rows, columns, BITS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute out[n] = (127 - slot of row n's trailing run of equal ids, at most 127) · 2^56 + hash of BITS bits.

    The slot is where the run begins. So sorted rows begin with the longest: the convolutions work on tiles of words of
    one length. ids [N, C]; out [N] int64. Floor: the ids once.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < rows
    base = ids + row.to(tl.int64)[:, None] * row_stride
    end = tl.zeros((1, 1), dtype=tl.int64) + (columns - 1)
    last = tl.load(base + end * column_stride, mask=live[:, None], other=0)
    total = tl.zeros((ROWS,), dtype=tl.uint64)
    tail = tl.zeros((ROWS,), dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = live[:, None] & (column < columns)[None, :]
        x = tl.load(base + column.to(tl.int64)[None, :] * column_stride, mask=mask, other=0)
        place = (column + 1).to(tl.uint64)[None, :] * 0x1E3779B97F4A7C15
        total += tl.sum(tl.where(mask, _mixed(x.to(tl.uint64) * 0x2127599BF4325C37 + place), 0), axis=1)
        tail = tl.maximum(tail, tl.max(tl.where(mask & (x != last), (column + 1)[None, :], 0), axis=1))
    length = (127 - tl.minimum(tail, 127)).to(tl.int64) << 56
    tl.store(out + row, length | (_mixed(total) & ((1 << BITS) - 1)).to(tl.int64), mask=live)


@triton.jit
def unique_rows_mark_first_kernel(
    ids, row_stride, column_stride, order, sorted_keys, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute out[i] = 1 if sorted row i differs, in full, from the one before it, else 0; int32; out[0] = 0."""
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = (place > 0) & (place < rows)
    alike = tl.load(sorted_keys + place, mask=live, other=0) == tl.load(sorted_keys + place - 1, mask=live, other=0)
    here = tl.load(order + place, mask=live, other=0)[:, None] * row_stride
    before = tl.load(order + place - 1, mask=live, other=0)[:, None] * row_stride
    differ = tl.where(alike, 0, live.to(tl.int32))
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at = ids + column.to(tl.int64)[None, :] * column_stride
        mask = (alike & live)[:, None] & (column < columns)[None, :]
        other = tl.load(at + here, mask=mask, other=0) != tl.load(at + before, mask=mask, other=0)
        differ = tl.maximum(differ, tl.max(other.to(tl.int32), axis=1))
    tl.store(out + place, differ, mask=place < rows)


@triton.jit
def unique_rows_scatter_kernel(
    ids, row_stride, column_stride, order, ranks, unique, inverse, rows, columns, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write inverse [N], the ranks as `order` has them, and unique [N, C]: the first row of each rank, then zeros."""
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = place < rows
    source = tl.load(order + place, mask=live, other=0)
    rank = tl.load(ranks + place, mask=live, other=0)
    tl.store(inverse + source, rank, mask=live)
    new = live & (rank != tl.load(ranks + place - 1, mask=live & (place > 0), other=-1))
    past = live & (place > tl.load(ranks + rows - 1))
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (column < columns)[None, :]
        at = source[:, None] * row_stride + column.to(tl.int64)[None, :] * column_stride
        x = tl.load(ids + at, mask=new[:, None] & inside, other=0)
        tl.store(unique + rank[:, None] * columns + column[None, :], x, mask=new[:, None] & inside)
        there = unique + place.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(there, tl.zeros_like(x), mask=past[:, None] & inside)


def _padded(ids: Tensor, bits: int = HASH_BITS) -> tuple[Tensor, ...]:
    """Return unique, inverse and count of padded_unique_rows, inverse sorted, and the position of each before."""
    rows, columns = ids.shape
    unique, inverse = ids.new_empty(rows, columns), ids.new_empty(rows, dtype=torch.int64)
    hashes, first = torch.empty_like(inverse), ids.new_empty(rows, dtype=torch.int32)
    view, grid = (ids, *ids.stride()), (cdiv(rows, 16),)
    tile = {"ROWS": 16, "BLOCK": ceil_power_of_two(columns, 16, 64)}
    launch(unique_rows_sort_keys_kernel, grid, *view, hashes, rows, columns, BITS=bits, **tile)
    ordered, order = torch.sort(hashes, stable=True)
    launch(unique_rows_mark_first_kernel, grid, *view, order, ordered, first, rows, columns, **tile)
    # Ranks rise with the keys, and equal keys keep their order: sorting `inverse` would give `ranks` and `order` again.
    ranks = torch.cumsum(first, 0, dtype=torch.int64)
    launch(unique_rows_scatter_kernel, grid, *view, order, ranks, unique, inverse, rows, columns, **tile)
    count = ranks[-1] + 1 if rows else ids.new_zeros((), dtype=torch.int64)
    return unique, inverse, count, ranks, order


def _gather(a: Any) -> Tensor:
    """Gather in plain torch, which must see no index outside the table; the row of such an index is NaN."""
    inverse = a.inverse.clamp(0, len(a.table) - 1)
    return a.table.index_select(0, inverse).where((inverse == a.inverse)[:, None], torch.nan)


def _gather_backward(a: Any) -> Tensor:
    """Sum by `segment_sum`, with given positions clamped before they become addresses."""
    order = None if a.order is None else (a.sorted_inverse.contiguous(), a.order.clamp(0, len(a.order) - 1))
    return segment_sum(a.grad.contiguous(), a.inverse, a.entries, order)


implement("padded_unique_rows", lambda a: _padded(a.ids))
implement("gather_rows", _gather)
implement("gather_rows_backward", _gather_backward)
