"""AdaGrad in plain torch: the definition. It does not wait for the device either."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops.adagrad.op import AdagradArguments, AdagradRowsArguments, RowOrder, row_order


def run(a: AdagradArguments) -> None:
    for weight, accumulator, gradient in zip(a.parameters, a.accumulators, a.gradients, strict=True):
        scaled = gradient if a.scale is None else gradient * a.scale.to(gradient.dtype)
        sums = accumulator + scaled.square()
        moved = weight - a.learning_rate * scaled / sums.sqrt()
        # A scale that is not finite leaves everything unchanged.
        weight.copy_(moved if a.scale is None else torch.where(a.scale.isfinite(), moved, weight))
        accumulator.copy_(sums if a.scale is None else torch.where(a.scale.isfinite(), sums, accumulator))


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


def run_rows(a: AdagradRowsArguments) -> None:
    if a.table.shape[0] == 0:
        return
    words, sums = merged(a.order or row_order(a.ids, a.table.shape[0]), a.rows, a.table.shape[0])
    inside, place = (words >= 0).view(-1, *[1] * (a.rows.dim() - 1)), words.clamp_min(0)
    keep = inside if a.scale is None else inside & a.scale.isfinite()
    scaled = sums if a.scale is None else sums * a.scale.to(sums.dtype)
    a.accumulator.index_add_(0, place, torch.where(keep, scaled.square(), 0))
    step = a.learning_rate * scaled / a.accumulator.index_select(0, place).sqrt()
    a.table.index_add_(0, place, torch.where(keep, -step, 0))


def square_norm(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.square().sum() for tensor in tensors]).sum()


def merged_square_norm(ids: Tensor, rows: Tensor, num_words: int, order: RowOrder | None) -> Tensor:
    return merged(order or row_order(ids, num_words), rows, num_words)[1].square().sum()
