"""The rows that negative sampling multiplies: its targets', then its samples'."""

import math

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import table_rows


def gathered(
    targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, log_noise: Tensor | None, negatives: float,
    sparse: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """rows [N + S, D], offsets b (- ln(K P)) [N + S] and words [N + S]: of the targets, then of the samples."""
    ids = torch.cat([targets, samples])
    offsets = table_rows(bias, ids, sparse)
    if log_noise is not None:
        offsets = offsets - (log_noise.detach().index_select(0, ids) + math.log(negatives))
    return table_rows(weight, ids, sparse), offsets, ids
