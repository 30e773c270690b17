"""The rows that negative sampling multiplies: its targets', then its samples'."""

import math

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import table_rows
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


def gathered(a: NegativeSamplingArguments) -> tuple[Tensor, Tensor, Tensor]:
    """rows [N + S, D], offsets b (- ln(K P)) [N + S] and words [N + S]: of the targets, then of the samples."""
    ids = torch.cat([a.targets, a.samples])
    offsets = table_rows(a.bias, ids, a.sparse)
    if a.log_noise is not None:
        offsets = offsets - (a.log_noise.detach().index_select(0, ids) + math.log(a.negatives))
    return table_rows(a.weight, ids, a.sparse), offsets, ids
