"""negative_sampling in plain torch: the definition."""

import functools
import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from elmo_fast.ops._precision import rounded
from elmo_fast.ops._table_rows import in_chunks, table_rows


def _losses(
    hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor, share: float, hits: bool
) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    others = logsigmoid(-(hidden @ sample_rows.t() + offsets[count:]))
    if not hits:
        others = others.masked_fill(ids[:count, None] == ids[None, count:], 0.0)
    return -logsigmoid(true) - share * others.sum(1)


def negative_sampling(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    samples: Tensor,
    log_noise: Tensor | None,
    negatives: float,
    sparse: bool,
    chunk_bytes: int,
    precision: str,
) -> Tensor:
    ids = torch.cat([targets, samples])
    offsets = table_rows(bias, ids, sparse)
    if log_noise is not None:
        offsets = offsets - (log_noise.index_select(0, ids) + math.log(negatives))
    rows = rounded(table_rows(weight, ids, sparse), precision)
    losses = functools.partial(_losses, share=negatives / len(samples), hits=log_noise is not None)
    return in_chunks(losses, rounded(hidden, precision), rows, offsets, ids, chunk_bytes)
