"""Rows of a table, with a gradient that touches only those rows; losses over a sample, in chunks of rows."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._precision import rounded


def first_rows(table: Tensor, count: Tensor | None) -> Tensor:
    """Return the table [N, D] with zeros, which pass no gradient, from row `count` on; unchanged if that is None."""
    if count is None:
        return table
    return torch.where((torch.arange(table.shape[0], device=table.device) < count)[:, None], table, 0)


class _SparseRows(torch.autograd.Function):
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
    def vmap(info: Any, in_dims: Any, table: Tensor, ids: Tensor, padding: int | None) -> Any:
        raise ElmoFastError(
            "rows of a table with a sparse gradient have no batching rule for torch.func.vmap; give the op the whole "
            'batch, or use backend="reference" without sparse gradients'
        )

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


def table_gradient(shape: torch.Size, ids: Tensor, rows: Tensor, sparse: bool) -> Tensor:
    """Compute the gradient [V, ...] of a table from the gradients `rows` of the words `ids`, summed for each word.

    A dense gradient on a CPU with several threads differs bitwise on every run, because torch adds the rows of one word
    in any order.

    sparse: return COO, coalesced on the CPU. On other devices words may be repeated, because `coalesce` would wait for
    the device to know the number of distinct words (`stays_sparse` says when their sum waits for it too).
    """
    if not sparse:
        return torch.index_put(rows.new_zeros(shape), (ids,), rows, accumulate=True)
    gradient = torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, device=rows.device, check_invariants=False)
    return gradient.coalesce() if coalesced_at_once(rows.device) else gradient


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
    return torch.sparse_coo_tensor(
        gradient._indices(),
        gradient._values(),
        gradient.shape,
        device=gradient.device,
        is_coalesced=True,
        check_invariants=False,
    )


def fake_of_samples(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the C++ kernels' results: [N], [N], and [N, S] if that fits into `chunk_bytes` and is cached."""
    count, samples = a.hidden.shape[0], a.rows.shape[0] - a.hidden.shape[0]
    cached = a.keep and (count <= 1 or count * samples * a.hidden.element_size() <= a.chunk_bytes)
    losses = a.hidden.new_empty(count)
    return losses, losses.new_empty(count), a.hidden.new_empty(count if cached else 0, samples)


def in_chunks(losses: Callable[..., Tensor], a: Any, *more: Any) -> Tensor:
    """Call losses(hidden, targets' rows, samples' rows, offsets, ids, *more) in chunks of rows.

    The scores of a chunk take at most `chunk_bytes`, or one row. If there are several chunks, the backward pass
    computes the scores again.
    """
    rows, offsets, ids = a.gathered()
    hidden, rows, count = rounded(a.hidden, a.precision), rounded(rows, a.precision), a.hidden.shape[0]
    step = max(1, min(count, a.chunk_bytes // (a.samples.shape[0] * hidden.element_size())))
    results = []
    for i in range(0, max(count, 1), step):
        part = slice(i, min(i + step, count))
        offsets_here, ids_here = (torch.cat([each[:count][part], each[count:]]) for each in (offsets, ids))
        chunk = (hidden[part], rows[:count][part], rows[count:], offsets_here, ids_here, *more)
        results.append(losses(*chunk) if count <= step else checkpoint(losses, *chunk, use_reentrant=False))
    return torch.cat(results)
