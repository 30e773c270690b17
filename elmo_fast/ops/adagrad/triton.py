"""AdaGrad in Triton: many tensors in few launches, rows merged by a sort, the clip read from the device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton, _weights
from elmo_fast.ops._checks import given
from elmo_fast.ops.adagrad import host
from elmo_fast.ops.adagrad.op import AdagradArguments, AdagradRowsArguments, RowOrder, row_order


def _check_contiguous(op: str, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ElmoFastError(
                f"{op}: the Triton kernels write {name} in place and take contiguous ones only; got "
                f'{given(tensor)} with strides {tensor.stride()}; make it contiguous or name backend="reference"'
            )


def _numbers(a: AdagradArguments | AdagradRowsArguments, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Learning rate and scale on the device: a captured step and an eager one then run the same compiled kernels."""
    rate = a.learning_rate
    if not isinstance(rate, Tensor):
        rate = torch.full((), rate, dtype=torch.float32, device=like.device)
    return rate, a.scale


def run(a: AdagradArguments) -> None:
    """Copies of parameters that `ops/_weights.py` keeps, rounded and up to date, are written in the same pass."""
    groups: dict[torch.dtype | None, list[tuple[Tensor, ...]]] = {}
    for weight, accumulator, gradient in zip(a.parameters, a.accumulators, a.gradients, strict=True):
        _check_contiguous("adagrad_", parameters=weight, accumulators=accumulator)
        copy = None if torch.compiler.is_compiling() else _weights.kept_rounded(weight)
        key, more = (None, ()) if copy is None else (copy.dtype, (copy,))
        groups.setdefault(key, []).append((weight, accumulator, gradient, *more))
    numbers = _numbers(a, a.parameters[0])
    for key, group in groups.items():
        weights, sums, slopes, *copies = map(list, zip(*group, strict=True))
        _update(weights, sums, slopes, copies[0] if copies else [], *numbers)
        if key is not None:
            for weight in weights:
                _weights.mark_rounded(weight, key)


def run_rows(a: AdagradRowsArguments) -> None:
    _check_contiguous("adagrad_rows_", table=a.table, accumulator=a.accumulator)
    order = a.order or row_order(a.ids, a.table.shape[0])
    _update_rows(a.table, a.accumulator, *order, a.rows, *_numbers(a, a.table))


def square_norm(tensors: Sequence[Tensor]) -> Tensor:
    return _square_norm(list(tensors))


def merged_square_norm(ids: Tensor, rows: Tensor, num_words: int, order: RowOrder | None) -> Tensor:
    return _merged_square_norm(*(order or row_order(ids, num_words)), rows, num_words)


_update = _triton.define(
    "adagrad_(Tensor(a!)[] parameters, Tensor(b!)[] accumulators, Tensor[] gradients, Tensor(c!)[] copies,"
    " Tensor learning_rate, Tensor? scale) -> ()",
    host.update,
    lambda a: None,
)
_update_rows = _triton.define(
    "adagrad_rows_(Tensor(a!) table, Tensor(b!) accumulator, Tensor ids, Tensor positions, Tensor rows,"
    " Tensor learning_rate, Tensor? scale) -> ()",
    host.update_rows,
    lambda a: None,
)
_square_norm = _triton.define(
    "adagrad_square_norm(Tensor[] tensors) -> Tensor", host.square_norm, lambda a: a.tensors[0].new_empty(())
)
_merged_square_norm = _triton.define(
    "adagrad_merged_square_norm(Tensor ids, Tensor positions, Tensor rows, int num_words) -> Tensor",
    host.merged_square_norm,
    lambda a: a.rows.new_empty(()),
)
