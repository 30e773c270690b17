"""sampled_softmax in plain torch: the definition."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from elmo_fast.ops._precision import rounded
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments
from elmo_fast.ops.sampled_softmax.rows import gathered


def rows_per_chunk(num_rows: int, num_samples: int, itemsize: int, chunk_bytes: int) -> int:
    """How many rows of S logits fit into `chunk_bytes`; at least one."""
    return max(1, min(num_rows, chunk_bytes // max(1, num_samples * itemsize)))


def _losses(hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
    count = hidden.shape[0]
    true = (hidden * true_rows).sum(1) + offsets[:count]
    sampled = hidden @ sample_rows.t() + offsets[count:]
    sampled = sampled.masked_fill(ids[:count, None] == ids[None, count:], -torch.inf)
    return -torch.log_softmax(torch.cat([true[:, None], sampled], 1), 1)[:, 0]


def run(a: SampledSoftmaxArguments) -> Tensor:
    count = a.hidden.shape[0]
    rows, offsets, ids = gathered(a)
    hidden, rows = rounded(a.hidden, a.precision), rounded(rows, a.precision)
    step = rows_per_chunk(count, len(ids) - count, hidden.element_size(), a.chunk_bytes)
    if count <= step:
        return _losses(hidden, rows[:count], rows[count:], offsets, ids)
    losses = []
    for i in range(0, count, step):
        part = slice(i, min(i + step, count))
        part_offsets = torch.cat([offsets[:count][part], offsets[count:]])
        part_ids = torch.cat([ids[:count][part], ids[count:]])
        chunk = (hidden[part], rows[:count][part], rows[count:], part_offsets, part_ids)
        losses.append(checkpoint(_losses, *chunk, use_reentrant=False))
    return torch.cat(losses)
