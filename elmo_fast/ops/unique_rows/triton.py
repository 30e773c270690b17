"""unique_rows in Triton: sort rows by a 56-bit hash, compare each in full with the one before; no host sync."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._kernels import segment_sum
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, launch
from elmo_fast.ops.adagrad.op import RowOrder

HASH_BITS = 56  # with the 7 bits of the length above them, the sort keys stay positive


@triton.jit
def _mixed(x):
    """Map 64 bits by a bijection after which every bit depends on every bit (multiply and shift, twice)."""
    x = (x ^ (x >> 32)) * 0x1B873593CC9E2D51
    x = (x ^ (x >> 29)) * 0x2545F4914F6CDD1D
    return x ^ (x >> 32)


@triton.jit
def keys(
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
def firsts(
    ids, row_stride, column_stride, order, sorted_keys, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute out[i] = 1 if sorted row i differs, in full, from the one before it, else 0 (int32)."""
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = (place > 0) & (place < rows)
    alike = tl.load(sorted_keys + place, mask=live, other=0) == tl.load(sorted_keys + place - 1, mask=live, other=0)
    alike = alike & live
    here = tl.load(order + place, mask=live, other=0)[:, None] * row_stride
    before = tl.load(order + place - 1, mask=live, other=0)[:, None] * row_stride
    differ = tl.zeros((ROWS,), dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        at = ids + column.to(tl.int64)[None, :] * column_stride
        mask = alike[:, None] & (column < columns)[None, :]
        other = tl.load(at + here, mask=mask, other=0) != tl.load(at + before, mask=mask, other=0)
        differ = tl.maximum(differ, tl.max(other.to(tl.int32), axis=1))
    tl.store(out + place, tl.where(alike, differ, 1), mask=place < rows)


@triton.jit
def scatter(
    ids, row_stride, column_stride, order, first, rank, unique, inverse, ordered, count, rows, columns,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write unique [N, C], inverse [N], inverse sorted, as `order` has it, and count [].

    unique has the rows that are the first of their kind at index rank - 1, then zeros.
    """
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = place < rows
    number = tl.load(rank + rows - 1)
    if tl.program_id(0) == 0:
        tl.store(count, number)
    source = tl.load(order + place, mask=live, other=0)
    target = tl.load(rank + place, mask=live, other=1) - 1
    tl.store(inverse + source, target, mask=live)
    tl.store(ordered + place, target, mask=live)
    new = live & (tl.load(first + place, mask=live, other=0) != 0)
    past = live & (place >= number)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = (column < columns)[None, :]
        at = source[:, None] * row_stride + column.to(tl.int64)[None, :] * column_stride
        x = tl.load(ids + at, mask=new[:, None] & inside, other=0)
        tl.store(unique + target[:, None] * columns + column[None, :], x, mask=new[:, None] & inside)
        nothing = tl.zeros((ROWS, BLOCK), dtype=unique.dtype.element_ty)
        there = unique + place.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(there, nothing, mask=past[:, None] & inside)


@triton.jit
def take(table, inverse, out, entries, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute out [N, D] = table[inverse], NaN if inverse points outside the table. Floor: reading and writing N·D."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = (row < rows)[:, None] & (column < width)[None, :]
    entry = tl.load(inverse + row, mask=row < rows, other=0)[:, None]
    known = (entry >= 0) & (entry < entries)
    x = tl.load(table + entry * width + column[None, :], mask=live & known, other=float("nan"))
    tl.store(out + row.to(tl.int64)[:, None] * width + column[None, :], x, mask=live)


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Run elmo_fast.ops.unique_rows; a shape that depends on values has to wait for the device."""
    unique, inverse, count, _, _ = _padded(ids)
    return unique[: int(count)].clone(), inverse


def gather(table: Tensor, inverse: Tensor, order: RowOrder | None) -> Tensor:
    return _gather_op(table, inverse, *(order or (None, None)), table.shape[0])


def _padded(ids: Tensor, bits: int = HASH_BITS) -> tuple[Tensor, ...]:
    """Return unique, inverse and count of padded_unique_rows, inverse sorted, and the position of each before."""
    rows, columns = ids.shape
    new = ids.new_empty
    unique, inverse, sorted_inverse = new(rows, columns), new(rows, dtype=torch.int64), new(rows, dtype=torch.int64)
    count = torch.zeros((), dtype=torch.int64, device=ids.device)
    if rows == 0:
        return unique, inverse, count, sorted_inverse, torch.empty_like(sorted_inverse)
    hashes, first = new(rows, dtype=torch.int64), new(rows, dtype=torch.int32)
    view = (ids, *ids.stride())
    tile: dict[str, Any] = {"ROWS": 16, "BLOCK": ceil_power_of_two(columns, 16, 64), "num_warps": 4}
    grid = (cdiv(rows, tile["ROWS"]),)
    launch(keys, grid, *view, hashes, rows, columns, BITS=bits, **tile)
    ordered, order = torch.sort(hashes, stable=True)
    launch(firsts, grid, *view, order, ordered, first, rows, columns, **tile)
    rank = torch.cumsum(first, 0, dtype=torch.int64)
    results = unique, inverse, sorted_inverse, count
    launch(scatter, grid, *view, order, first, rank, *results, rows, columns, **tile)
    # Ranks rise with the keys, and equal keys keep their order: sorting `inverse` would give `order` again.
    return unique, inverse, count, sorted_inverse, order


def _fake_padded(a: Any) -> tuple[Tensor, ...]:
    new, inverse = a.ids.new_empty, a.ids.new_empty(a.ids.shape[0], dtype=torch.int64)
    return new(a.ids.shape), inverse, new((), dtype=torch.int64), *(torch.empty_like(inverse) for _ in range(2))


def _gather(a: Any) -> Tensor:
    table, inverse = a.table.contiguous(), a.inverse.contiguous()
    rows, width = inverse.shape[0], table.shape[1]
    out = table.new_empty(rows, width)
    block = ceil_power_of_two(width, 16, 512)
    tile: dict[str, Any] = {"ROWS": 2048 // block, "BLOCK": block, "num_warps": 4}
    grid = (cdiv(rows, tile["ROWS"]), cdiv(width, block))
    launch(take, grid, table, inverse, out, table.shape[0], rows, width, **tile)
    return out


def _gather_backward(a: Any) -> Tensor:
    """Sum by `segment_sum`, with given positions clamped before they become addresses."""
    order = None if a.order is None else (a.sorted_inverse.contiguous(), a.order.clamp(0, len(a.order) - 1))
    return segment_sum(a.grad.contiguous(), a.inverse, a.entries, order)


padded = _triton.define(
    "padded_unique_rows(Tensor ids)"
    " -> (Tensor unique, Tensor inverse, Tensor count, Tensor sorted_inverse, Tensor order)",
    lambda a: _padded(a.ids),
    _fake_padded,
)
# The table itself is not saved for the gradient: how many rows it has suffices.
_triton.define(
    "gather_rows_backward(Tensor grad, Tensor inverse, Tensor? sorted_inverse, Tensor? order, SymInt entries)"
    " -> Tensor table",
    _gather_backward,
)
_gather_op = _triton.define(
    "gather_rows(Tensor table, Tensor inverse, Tensor? sorted_inverse, Tensor? order, SymInt entries) -> Tensor rows",
    _gather,
    lambda a: a.table.new_empty(a.inverse.shape[0], a.table.shape[1]),
    Backward(shapes=lambda a: {"table": (a.entries, a.grad.shape[1])}),
)
