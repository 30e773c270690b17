"""unique_rows in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops.adagrad.op import RowOrder


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    if ids.is_meta:
        raise ElmoFastError(
            "unique_rows: the number of distinct rows depends on values, which meta tensors do not have; use "
            "padded_unique_rows"
        )
    unique, inverse = torch.unique(ids, dim=0, return_inverse=True)
    return unique, inverse


def padded(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if ids.is_meta:
        return (
            torch.empty_like(ids),
            ids.new_empty(ids.shape[0], dtype=torch.int64),
            ids.new_empty((), dtype=torch.int64),
        )
    return pad(*run(ids))


def pad(unique: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Append rows of zeros to the distinct rows, as many as there are ids in all; also count the distinct rows."""
    number, rows = unique.shape[0], inverse.shape[0]
    below = unique.new_zeros(rows - number, unique.shape[1])
    return torch.cat([unique, below]), inverse, torch.full((), number, dtype=torch.int64, device=unique.device)


def gather(table: Tensor, inverse: Tensor, order: RowOrder | None) -> Tensor:
    # torch's index_select raises IndexError or RuntimeError, depending on its code path.
    if inverse.device.type == "cpu" and inverse.numel() and not torch.compiler.is_compiling():
        low, high = (int(bound) for bound in inverse.aminmax())
        if low < 0 or high >= len(table):
            raise IndexError(f"gather_rows: inverse must lie from 0 to {len(table) - 1}; got {low} to {high}")
    return table.index_select(0, inverse)
