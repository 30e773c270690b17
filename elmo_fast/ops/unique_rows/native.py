"""C++ on the CPU: one pass of hashing, rows compared in full, distinct rows in the order of their first occurrence."""

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported
from elmo_fast.ops.unique_rows.reference import gather as gather
from elmo_fast.ops.unique_rows.reference import pad


def run(ids: Tensor) -> tuple[Tensor, Tensor]:
    unique, inverse = torch.ops.elmo_fast.unique_rows(ids)
    return unique, inverse


def padded(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return pad(*run(ids))


if _native.C is not None:

    @torch.library.register_fake("elmo_fast::unique_rows")
    def _fake(ids: Tensor) -> tuple[Tensor, Tensor]:
        count = torch.library.get_ctx().new_dynamic_size()
        return ids.new_empty(count, ids.shape[1]), ids.new_empty(ids.shape[0], dtype=torch.int64)
