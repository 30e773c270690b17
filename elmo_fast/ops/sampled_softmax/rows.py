"""Rows of a table, with a gradient that touches only those rows."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _SparseRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        merged = torch.sparse_coo_tensor(ids.unsqueeze(0), grad, ctx.shape, check_invariants=False)
        return merged.coalesce(), None


def table_rows(table: Tensor, ids: Tensor, sparse: bool) -> Tensor:
    """table[ids], [N, ...] of table [V, ...]; its gradient is dense or, with `sparse`, coalesced COO."""
    return _SparseRows.apply(table, ids) if sparse else table.index_select(0, ids)


def coalesced(gradient: Tensor) -> Tensor:
    """A sparse COO gradient [V, ...] with sorted, distinct indices and the flag that says so.

    Where autograd stores a sparse gradient in `.grad` it keeps the entries but drops the flag, and `Tensor.coalesce`
    would sort and copy all of them again; here the order is looked at first, and only the flag is set if it holds.
    """
    if gradient.is_coalesced():
        return gradient
    ids = gradient._indices()[0]
    if not bool((ids[1:] > ids[:-1]).all()):
        return gradient.coalesce()
    return torch.sparse_coo_tensor(
        gradient._indices(), gradient._values(), gradient.shape, is_coalesced=True, check_invariants=False
    )
