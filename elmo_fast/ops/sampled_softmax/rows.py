"""The rows that a sampled softmax multiplies: its targets', then its samples'."""

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import table_rows
from elmo_fast.ops.log_uniform_sample import log_expected_counts


def gathered(
    targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, tries: Tensor | int, correction: str, sparse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """rows [N + S, D], offsets b - ln Q [N + S] and words [N + S]: those of the targets, then those of the samples."""
    ids = torch.cat([targets, samples])
    with torch.no_grad():
        log_expected = log_expected_counts(ids, tries, len(samples), weight.shape[0], correction=correction)
    return table_rows(weight, ids, sparse), table_rows(bias, ids, sparse) - log_expected.to(bias.dtype), ids
