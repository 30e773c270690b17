"""sampled_softmax in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.ops._precision import rounded
from elmo_fast.ops._table_rows import in_chunks, table_rows


def _losses(hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    sampled = hidden @ sample_rows.t() + offsets[count:]
    sampled = sampled.masked_fill(ids[:count, None] == ids[None, count:], -torch.inf)
    return -torch.log_softmax(torch.cat([true[:, None], sampled], 1), 1)[:, 0]


def sampled_softmax(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    samples: Tensor,
    log_expected: Tensor,
    sparse: bool,
    chunk_bytes: int,
    precision: str,
) -> Tensor:
    ids = torch.cat([targets, samples])
    offsets = table_rows(bias, ids, sparse) - log_expected
    rows = rounded(table_rows(weight, ids, sparse), precision)
    return in_chunks(_losses, rounded(hidden, precision), rows, offsets, ids, chunk_bytes)
