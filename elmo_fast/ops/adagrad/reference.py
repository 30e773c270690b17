"""AdaGrad in plain torch: the definition. Nothing here waits for the device either."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops.adagrad.order import RowOrder, row_order


def run(
    parameters: Sequence[Tensor],
    accumulators: Sequence[Tensor],
    gradients: Sequence[Tensor],
    learning_rate: float,
    scale: Tensor | None,
) -> None:
    for weight, accumulator, gradient in zip(parameters, accumulators, gradients, strict=True):
        given = gradient if scale is None else gradient * scale.to(gradient.dtype)
        sums = accumulator + given.square()
        moved = weight - learning_rate * given / sums.sqrt()
        _put(weight, accumulator, moved, sums, scale)


def _put(weight: Tensor, accumulator: Tensor, moved: Tensor, sums: Tensor, scale: Tensor | None) -> None:
    """A scale that is no finite number leaves everything as it was."""
    keep = torch.ones_like(weight, dtype=torch.bool) if scale is None else scale.isfinite()
    weight.copy_(torch.where(keep, moved, weight))
    accumulator.copy_(torch.where(keep, sums, accumulator))


def merged(order: RowOrder, rows: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """(ids [n] int64, sums [n, ...]): the sum of each distinct id's rows where the id first stands; else id -1 and 0.

    The shapes do not depend on the values.
    """
    ids, positions = order
    heads = torch.ones_like(ids, dtype=torch.bool)
    heads[1:] = ids[1:] != ids[:-1]
    segment = heads.cumsum(0) - 1
    sums = torch.zeros_like(rows).index_add_(0, segment, rows.index_select(0, positions))
    words = torch.full_like(segment, -1).index_copy_(0, segment, ids.long())
    inside = (words >= 0) & (words < num_words)
    mask = inside.view(-1, *[1] * (rows.dim() - 1))
    return torch.where(inside, words, -1), torch.where(mask, sums, torch.zeros_like(sums))


def run_rows(
    table: Tensor,
    accumulator: Tensor,
    ids: Tensor,
    rows: Tensor,
    learning_rate: float,
    scale: Tensor | None,
    order: RowOrder | None,
) -> None:
    if table.shape[0] == 0:
        return
    words, sums = merged(order or row_order(ids, table.shape[0]), rows, table.shape[0])
    inside, place = (words >= 0).view(-1, *[1] * (rows.dim() - 1)), words.clamp_min(0)
    keep = inside if scale is None else inside & scale.isfinite()
    given = sums if scale is None else sums * scale.to(sums.dtype)
    accumulator.index_add_(0, place, torch.where(keep, given.square(), torch.zeros_like(given)))
    step = learning_rate * given / accumulator.index_select(0, place).sqrt()
    table.index_add_(0, place, torch.where(keep, -step, torch.zeros_like(step)))


def square_norm(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.square().sum() for tensor in tensors]).sum()


def merged_square_norm(ids: Tensor, rows: Tensor, num_words: int, order: RowOrder | None) -> Tensor:
    return merged(order or row_order(ids, num_words), rows, num_words)[1].square().sum()
