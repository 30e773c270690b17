"""unique_rows in C++: one pass of hashing, rows compared in full, distinct rows in the order of first occurrence."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._native import describe
from elmo_fast.ops.unique_rows.reference import gather as gather
from elmo_fast.ops.unique_rows.reference import pad


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.elmo_fast.unique_rows(ids)


def padded(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return pad(*run(ids))


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    count = torch.library.get_ctx().new_dynamic_size()
    return a.ids.new_empty(count, a.ids.shape[1]), a.ids.new_empty(a.ids.shape[0], dtype=torch.int64)


describe("unique_rows", _fake)
