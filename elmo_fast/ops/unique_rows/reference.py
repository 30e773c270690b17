"""unique_rows in plain torch and Python: the definition."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError


def unique_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    if ids.is_meta:
        raise ElmoFastError(
            "unique_rows: the number of distinct rows depends on values, which meta tensors do not have; use "
            "ordered_unique_rows"
        )
    if ids.device.type == "cpu" and not torch.compiler.is_compiling():
        # torch.unique(dim=0) sorts rows as tensors; a dictionary of their bytes is many times faster.
        table = np.ascontiguousarray(ids.numpy())
        of_rows: Any = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel().tolist()
        numbers = dict[bytes, int]()
        numbered = [numbers.setdefault(row, len(numbers)) for row in of_rows]
        distinct = np.frombuffer(b"".join(numbers), table.dtype).reshape(-1, table.shape[1])
        return torch.from_numpy(distinct.copy()), torch.tensor(numbered, dtype=torch.int64, device="cpu")
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
