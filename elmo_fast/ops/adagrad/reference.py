"""AdaGrad in plain torch: the definition. It does not wait for the device either."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import RowOrder, row_order


def adagrad_(
    parameters: Sequence[Tensor],
    accumulators: Sequence[Tensor],
    gradients: Sequence[Tensor],
    learning_rate: float | Tensor,
    scale: Tensor | None,
) -> None:
    for weight, accumulator, gradient in zip(parameters, accumulators, gradients, strict=True):
        scaled = gradient if scale is None else gradient * scale.to(gradient.dtype)
        sums = accumulator + scaled.square()
        moved = weight - learning_rate * scaled / sums.sqrt()
        # A scale that is not finite leaves everything unchanged.
        weight.copy_(moved if scale is None else torch.where(scale.isfinite(), moved, weight))
        accumulator.copy_(sums if scale is None else torch.where(scale.isfinite(), sums, accumulator))


def merged(order: RowOrder, rows: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Return ids [n] int64 and sums [n, ...]: each distinct id with the sum of its rows, then ids -1 with zeros.

    Ids outside the table become -1 with zeros too. The shapes do not depend on the values.
    """
    ids, positions = order
    heads = torch.ones_like(ids, dtype=torch.bool)
    heads[1:] = ids[1:] != ids[:-1]
    segment = heads.cumsum(0) - 1
    sums = torch.zeros_like(rows).index_add_(0, segment, rows.index_select(0, positions))
    words = torch.full_like(segment, -1).index_copy_(0, segment, ids.long())
    inside = (words >= 0) & (words < num_words)
    mask = inside.view(-1, *[1] * (rows.dim() - 1))
    return torch.where(inside, words, -1), torch.where(mask, sums, 0)


def adagrad_rows_(
    table: Tensor,
    accumulator: Tensor,
    ids: Tensor,
    rows: Tensor,
    learning_rate: float | Tensor,
    scale: Tensor | None,
    order: RowOrder | None,
) -> None:
    if table.shape[0] == 0:
        return
    words, sums = merged(order or row_order(ids, table.shape[0]), rows, table.shape[0])
    inside, index = (words >= 0).view(-1, *[1] * (rows.dim() - 1)), words.clamp_min(0)
    keep = inside if scale is None else inside & scale.isfinite()
    scaled = sums if scale is None else sums * scale.to(sums.dtype)
    accumulator.index_add_(0, index, torch.where(keep, scaled.square(), 0))
    step = learning_rate * scaled / accumulator.index_select(0, index).sqrt()
    table.index_add_(0, index, torch.where(keep, -step, 0))


def _norms(values: Tensor) -> Tensor:
    """Compute the norm of each 512 numbers: torch adds the squares of a row one after the other, on one thread."""
    whole = values.numel() // 512 * 512
    rows, rest = values[:whole].view(-1, 512), values[whole:].view(1, -1)
    return torch.cat([torch.linalg.vector_norm(rows, dim=1), torch.linalg.vector_norm(rest, dim=1)])


def square_norm(tensors: Sequence[Tensor]) -> Tensor:
    norms = torch.cat([_norms(tensor.reshape(-1)) for tensor in tensors])
    return _norms(norms.double()).square().sum().to(norms.dtype)


def merged_square_norm(order: RowOrder, rows: Tensor, num_words: int) -> Tensor:
    return square_norm([merged(order, rows, num_words)[1]])
