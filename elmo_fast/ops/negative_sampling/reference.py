"""negative_sampling in plain torch: the definition."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from elmo_fast.ops._precision import rounded
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments
from elmo_fast.ops.negative_sampling.rows import gathered


def _losses(
    hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor, share: float, hits: bool
) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    others = logsigmoid(-(hidden @ sample_rows.t() + offsets[count:]))
    if not hits:
        others = others.masked_fill(ids[:count, None] == ids[None, count:], 0.0)
    return -logsigmoid(true) - share * others.sum(1)


def run(a: NegativeSamplingArguments) -> Tensor:
    count, size = a.hidden.shape[0], a.samples.shape[0]
    rows, offsets, ids = gathered(a)
    hidden, rows = rounded(a.hidden, a.precision), rounded(rows, a.precision)
    step = max(1, min(count, a.chunk_bytes // (size * hidden.element_size())))
    losses = []
    for i in range(0, max(count, 1), step):
        part = slice(i, min(i + step, count))
        part_offsets = torch.cat([offsets[:count][part], offsets[count:]])
        part_ids = torch.cat([ids[:count][part], ids[count:]])
        chunk = (
            hidden[part],
            rows[:count][part],
            rows[count:],
            part_offsets,
            part_ids,
            a.share,
            a.log_noise is not None,
        )
        losses.append(_losses(*chunk) if count <= step else checkpoint(_losses, *chunk, use_reentrant=False))
    return torch.cat(losses)
