"""unique_rows in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError


def unique_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    if ids.is_meta:
        raise ElmoFastError(
            "unique_rows: the number of distinct rows depends on values, which meta tensors do not have; use "
            "padded_unique_rows"
        )
    unique, inverse = torch.unique(ids, dim=0, return_inverse=True)
    # torch sorts the rows; here they keep the order of their first occurrence, and so do sums over them.
    rows = torch.arange(len(ids), device=ids.device)
    order = rows.new_full((len(unique),), len(ids)).scatter_reduce(0, inverse, rows, "amin").argsort()
    return unique[order], order.argsort()[inverse]


def gather_rows(table: Tensor, inverse: Tensor) -> Tensor:
    # torch's index_select raises IndexError or RuntimeError, depending on its code path.
    if inverse.device.type == "cpu" and inverse.numel() and not torch.compiler.is_compiling():
        low, high = (int(bound) for bound in inverse.aminmax())
        if low < 0 or high >= len(table):
            raise IndexError(f"gather_rows: inverse must lie from 0 to {len(table) - 1}; got {low} to {high}")
    return table.index_select(0, inverse)
