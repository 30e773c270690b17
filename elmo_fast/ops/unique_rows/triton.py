"""Triton: rows are sorted by a hash of 56 bits, and each is compared in full with the one before it. No host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._segments import segment_sum
from elmo_fast.ops._triton import ceil_power_of_two, launch

if _triton.WHY_NOT is None:
    from elmo_fast.ops.unique_rows import kernels

unsupported = _triton.unsupported
HASH_BITS = 56  # with the 7 bits of the length above them the keys of the sort stay positive


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    """As elmo_fast.ops.unique_rows; a shape that depends on values has to wait for the device."""
    unique, inverse, count = _padded(ids)
    return unique[: int(count)].clone(), inverse


def padded(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As elmo_fast.ops.padded_unique_rows."""
    unique, inverse, count = _padded_op(ids)
    return unique, inverse, count


def gather(table: Tensor, inverse: Tensor) -> Tensor:
    """As elmo_fast.ops.gather_rows."""
    rows: Tensor = _gather_op(table, inverse)
    return rows


def _padded(ids: Tensor, bits: int = HASH_BITS) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = ids.shape
    new = ids.new_empty
    unique, inverse = new(rows, columns), new(rows, dtype=torch.int64)
    count = torch.zeros((), dtype=torch.int64, device=ids.device)
    if rows == 0:
        return unique, inverse, count
    keys, first = new(rows, dtype=torch.int64), new(rows, dtype=torch.int32)
    view = (ids, *ids.stride())
    tile: dict[str, Any] = {"ROWS": 16, "BLOCK": ceil_power_of_two(columns, 16, 64), "num_warps": 4}
    grid = (-(-rows // tile["ROWS"]),)
    launch(kernels.keys, grid, *view, keys, rows, columns, BITS=bits, **tile)
    ordered, order = torch.sort(keys, stable=True)
    launch(kernels.firsts, grid, *view, order, ordered, first, rows, columns, **tile)
    rank = torch.cumsum(first, 0, dtype=torch.int64)
    launch(kernels.scatter, grid, *view, order, first, rank, unique, inverse, count, rows, columns, **tile)
    return unique, inverse, count


def _fake_padded(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = ids.shape[0]
    inverse = ids.new_empty(rows, dtype=torch.int64)
    return ids.new_empty(ids.shape), inverse, ids.new_empty((), dtype=torch.int64)


def _gather(table: Tensor, inverse: Tensor) -> Tensor:
    table, inverse = table.contiguous(), inverse.contiguous()
    rows, width = inverse.shape[0], table.shape[1]
    out = table.new_empty(rows, width)
    block = ceil_power_of_two(width, 16, 512)
    tile: dict[str, Any] = {"ROWS": 2048 // block, "BLOCK": block, "num_warps": 4}
    grid = (-(-rows // tile["ROWS"]), -(-width // block))
    launch(kernels.gather, grid, table, inverse, out, table.shape[0], rows, width, **tile)
    return out


def _gather_backward(grad: Tensor, inverse: Tensor, entries: int) -> Tensor:
    return segment_sum(grad.contiguous(), inverse, entries)


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.entries = inputs[0].shape[0]
    ctx.save_for_backward(inputs[1])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _gather_backward_op(grad, ctx.saved_tensors[0], ctx.entries), None


if _triton.WHY_NOT is None:
    _padded_op = _triton.define(
        "padded_unique_rows(Tensor ids) -> (Tensor unique, Tensor inverse, Tensor count)", _padded, _fake_padded
    )
    _gather_backward_op = _triton.define(
        "gather_rows_backward(Tensor grad, Tensor inverse, int entries) -> Tensor",
        _gather_backward,
        lambda grad, inverse, entries: grad.new_empty(entries, grad.shape[1]),
    )
    _gather_op = _triton.define(
        "gather_rows(Tensor table, Tensor inverse) -> Tensor",
        _gather,
        lambda table, inverse: table.new_empty(inverse.shape[0], table.shape[1]),
        _setup,
        _differentiate,
    )
