"""AdaGrad in C++: gradient, sum and weight in one pass that also applies the clip; rows are updated in place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops._native import describe
from elmo_fast.ops._table_rows import coalesced
from elmo_fast.ops.adagrad import reference
from elmo_fast.ops.adagrad.op import AdagradArguments, AdagradRowsArguments, RowOrder


def run(a: AdagradArguments) -> None:
    """Run elmo_fast.ops.adagrad_; tensors that are not contiguous go through plain torch."""
    whole: list[tuple[Tensor, Tensor, Tensor]] = []
    for weight, accumulator, gradient in zip(a.parameters, a.accumulators, a.gradients, strict=True):
        if weight.is_contiguous() and accumulator.is_contiguous():
            whole.append((weight, accumulator, gradient))
        else:
            reference.run(AdagradArguments([weight], [accumulator], [gradient], a.learning_rate, a.scale))
    if whole:
        weights, sums, gradients = (list(column) for column in zip(*whole, strict=True))
        torch.ops.elmo_fast.adagrad_(weights, sums, gradients, float(a.learning_rate), a.scale)


def run_rows(a: AdagradRowsArguments) -> None:
    if not (a.table.is_contiguous() and a.accumulator.is_contiguous()):
        return reference.run_rows(a)
    ids, rows = _merged(a.ids, a.rows, a.table.shape[0])
    torch.ops.elmo_fast.adagrad_rows_(a.table, a.accumulator, ids, rows, float(a.learning_rate), a.scale)


def _merged(ids: Tensor, rows: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Return the distinct ids and the sum of each id's rows; copies nothing if they are distinct and sorted already."""
    inside = (ids >= 0) & (ids < num_words)
    if not inside.all():
        ids, rows = ids[inside], rows[inside]
    shape = (num_words, *rows.shape[1:])
    gradient = coalesced(
        torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, device=rows.device, check_invariants=False)
    )
    return gradient.indices()[0], gradient.values()


def square_norm(tensors: Sequence[Tensor]) -> Tensor:
    return torch.ops.elmo_fast.square_norm(tensors)


def merged_square_norm(ids: Tensor, rows: Tensor, num_words: int, order: RowOrder | None) -> Tensor:
    return square_norm([_merged(ids, rows, num_words)[1]])


describe("adagrad_", lambda a: None)
describe("adagrad_rows_", lambda a: None)
describe("square_norm", lambda a: a.tensors[0].new_empty(()))
