"""The rows that a sampled softmax multiplies: its targets', then its samples'."""

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import table_rows
from elmo_fast.ops.log_uniform_sample.op import log_expected_counts
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def gathered(a: SampledSoftmaxArguments) -> tuple[Tensor, Tensor, Tensor]:
    """rows [N + S, D], offsets b - ln Q [N + S] and words [N + S]: those of the targets, then those of the samples."""
    ids, words = torch.cat([a.targets, a.samples]), a.weight.shape[0]
    with torch.no_grad():
        log_expected = log_expected_counts(ids, a.tries, len(a.samples), words, correction=a.correction)
    offsets = table_rows(a.bias, ids, a.sparse) - log_expected.to(a.bias.dtype)
    return table_rows(a.weight, ids, a.sparse), offsets, ids
