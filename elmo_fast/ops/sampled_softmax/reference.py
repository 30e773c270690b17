"""sampled_softmax in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import in_chunks
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def _losses(hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    sampled = hidden @ sample_rows.t() + offsets[count:]
    sampled = sampled.masked_fill(ids[:count, None] == ids[None, count:], -torch.inf)
    return -torch.log_softmax(torch.cat([true[:, None], sampled], 1), 1)[:, 0]


def run(a: SampledSoftmaxArguments) -> Tensor:
    return in_chunks(_losses, a)
