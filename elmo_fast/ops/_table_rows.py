"""Rows of a table, with a gradient that touches only those rows."""

from collections.abc import Set
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo_fast.ops._autograd import refuse_vmap


class RowOrder(NamedTuple):
    """Sorted ids of a table's rows; equal ids keep their order."""

    ids: Tensor
    """the ids, ascending, [n]"""
    positions: Tensor
    """position of each id before sorting, [n] int64"""


def row_order(ids: Tensor, num_words: int) -> RowOrder:
    """Sort ids [n] int64|int32 of a table of `num_words` rows; ids outside it become -1 or `num_words`.

    With it a norm and an update of the same rows sort once. No value is read on the host. A radix sort passes over the
    keys once per byte: 32 bits suffice if V allows it, and no larger id can wrap into the table, because all are
    clamped first.
    """
    keys = ids.clamp(-1, num_words)
    return RowOrder(*torch.sort(keys.to(torch.int32) if num_words < 2**31 - 1 else keys, stable=True))


def first_rows(table: Tensor, count: Tensor | None) -> Tensor:
    """Return the table [N, D] with zeros, which pass no gradient, from row `count` on; unchanged if that is None."""
    if count is None:
        return table
    return torch.where((torch.arange(table.shape[0], device=table.device) < count)[:, None], table, 0)


class _SparseRows(torch.autograd.Function):
    vmap = staticmethod(refuse_vmap)

    @staticmethod
    def forward(table: Tensor, ids: Tensor, padding: int | None) -> Tensor:
        return table.index_select(0, ids)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int | None], output: Tensor) -> None:
        table, ids, ctx.padding = inputs
        ctx.save_for_backward(ids)
        ctx.save_for_forward(ids)
        ctx.shape = table.shape

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (ids,) = ctx.saved_tensors
        return tangent.index_select(0, ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (ids,) = ctx.saved_tensors
        if ctx.padding is not None:
            grad = grad.masked_fill((ids == ctx.padding)[:, None], 0)
        return table_gradient(ctx.shape, ids, grad, True), None, None


def coalesced_at_once(device: torch.device) -> bool:
    """Return whether sparse gradients are coalesced as they are computed: on the CPU, where nothing waits for it."""
    return device.type == "cpu"


def stays_sparse(entries: int, *parameters: Tensor) -> bool:
    """Return whether the sparse gradients of `parameters`, `entries` rows in all before words are merged, stay rows.

    Outside the CPU, autograd's sum of sparse gradients is their concatenation, unless it has more rows than the
    parameter has elements: then torch coalesces it (add_out_sparse_cuda), which waits for the device, is not allowed
    during a graph's capture, and leaves the bias of a table with other rows than the table. Such rows are no fewer than
    the table's own, and need more memory than a dense gradient.
    """
    return all(coalesced_at_once(each.device) or entries <= each.numel() for each in parameters)


def table_gradient(shape: torch.Size, ids: Tensor, rows: Tensor, sparse: bool, distinct: bool = False) -> Tensor:
    """Compute the gradient [V, ...] of a table from the gradients `rows` of the words `ids`, summed for each word.

    sparse: return COO, coalesced on the CPU. On other devices words may be repeated, because `coalesce` would wait for
    the device to know the number of distinct words (`stays_sparse` says when their sum waits for it too); so they may
    in a graph of torch.compile, because its Inductor cannot call `coalesce`. distinct: the ids rise, each comes once.
    """
    if not sparse:
        if rows.device.type == "cpu":  # in the order of the rows; torch's index_put takes any
            return rows.new_zeros(shape).index_add_(0, ids, rows)
        return torch.index_put(rows.new_zeros(shape), (ids,), rows, accumulate=True)
    options: dict[str, Any] = {"device": rows.device, "is_coalesced": distinct or None, "check_invariants": False}
    gradient = torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, **options)
    return gradient.coalesce() if coalesced_at_once(rows.device) and not torch.compiler.is_compiling() else gradient


def table_gradients(
    a: Any, ids: Tensor, rows: dict[str, Any], needed: Set[str], distinct: bool = False
) -> dict[str, Any]:
    """Return `rows`, the results of a loss's backward op, with the needed gradients of weight and bias as tables'."""
    shapes = {"weight": a.weight.shape, "bias": a.weight.shape[:1]}
    names = needed & shapes.keys()
    return rows | {name: table_gradient(shapes[name], ids, rows[name], a.sparse, distinct) for name in names}


def table_rows(table: Tensor, ids: Tensor, sparse: bool, padding: int | None = None) -> Tensor:
    """Return table[ids], [N, ...] of table [V, ...]; its gradient is dense or, if `sparse`, as `table_gradient`'s.

    padding: an id whose row gets a gradient of zeros; only with `sparse`. torch's own `embedding` drops such rows, and
    waits for a GPU to know how many there are.
    """
    return _SparseRows.apply(table, ids, padding) if sparse else table.index_select(0, ids)


def coalesced(gradient: Tensor) -> Tensor:
    """Return a sparse COO gradient [V, ...] with sorted, distinct indices, flagged as coalesced.

    When autograd stores a sparse gradient in `.grad`, it keeps the entries but drops the flag, and `Tensor.coalesce`
    would sort and copy all of them again. If the entries are sorted, this function only sets the flag. To check that,
    it waits for a GPU.
    """
    if gradient.is_coalesced():
        return gradient
    ids = gradient._indices()[0]
    if not bool((ids[1:] > ids[:-1]).all()):
        return gradient.coalesce()
    return gradient.detach()._coalesced_(True)
