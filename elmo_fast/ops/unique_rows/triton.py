"""Triton: rows are sorted by a hash of 56 bits, and each is compared in full with the one before it. No host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._kernels import segment_sum
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, launch
from elmo_fast.ops.adagrad.op import RowOrder
from elmo_fast.ops.unique_rows import kernels

HASH_BITS = 56  # with the 7 bits of the length above them the keys of the sort stay positive


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    """As elmo_fast.ops.unique_rows; a shape that depends on values has to wait for the device."""
    unique, inverse, count, _, _ = _padded(ids)
    return unique[: int(count)].clone(), inverse


def gather(table: Tensor, inverse: Tensor, order: RowOrder | None) -> Tensor:
    return _gather_op(table, inverse, *(order or (None, None)), table.shape[0])


def _padded(ids: Tensor, bits: int = HASH_BITS) -> tuple[Tensor, ...]:
    """unique, inverse and count of padded_unique_rows; inverse sorted, and the place of each before."""
    rows, columns = ids.shape
    new = ids.new_empty
    unique, inverse, sorted_inverse = new(rows, columns), new(rows, dtype=torch.int64), new(rows, dtype=torch.int64)
    count = torch.zeros((), dtype=torch.int64, device=ids.device)
    if rows == 0:
        return unique, inverse, count, sorted_inverse, torch.empty_like(sorted_inverse)
    keys, first = new(rows, dtype=torch.int64), new(rows, dtype=torch.int32)
    view = (ids, *ids.stride())
    tile: dict[str, Any] = {"ROWS": 16, "BLOCK": ceil_power_of_two(columns, 16, 64), "num_warps": 4}
    grid = (cdiv(rows, tile["ROWS"]),)
    launch(kernels.keys, grid, *view, keys, rows, columns, BITS=bits, **tile)
    ordered, order = torch.sort(keys, stable=True)
    launch(kernels.firsts, grid, *view, order, ordered, first, rows, columns, **tile)
    rank = torch.cumsum(first, 0, dtype=torch.int64)
    results = unique, inverse, sorted_inverse, count
    launch(kernels.scatter, grid, *view, order, first, rank, *results, rows, columns, **tile)
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
    launch(kernels.gather, grid, table, inverse, out, table.shape[0], rows, width, **tile)
    return out


def _gather_backward(a: Any) -> Tensor:
    """As segment_sum; places that were given are clamped before they become addresses."""
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
