"""The losses over a vocabulary in plain torch: the definition. full_softmax adds by blocks of rows and words."""

import functools
import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from elmo_fast.ops._precision import rounded
from elmo_fast.ops._table_rows import in_chunks, table_rows

ROWS = 1024


def _block(hidden: Tensor, weight: Tensor, bias: Tensor, true: Tensor) -> Tensor:
    # Logits less the target's: the log-sum-exp is then the loss itself, with no difference of large sums left to take.
    logits = torch.addmm(bias, hidden, weight.t()).sub_(true.unsqueeze(1))
    # If all logits are -infinity, so is logsumexp, but its gradient is NaN: here it is the loss's times zero.
    none = logits.isneginf().all(1)
    finite = torch.where(none.unsqueeze(1), logits.nan_to_num(), logits)
    return torch.logsumexp(finite, dim=1) + torch.where(none, -torch.inf, 0.0)


def _full_losses(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, words: int) -> Tensor:
    true = (hidden * weight.index_select(0, targets)).sum(1) + bias.index_select(0, targets)
    finite, infinite = true.where(true.isfinite(), 0), true.where(~true.isfinite(), 0)
    sums = []
    for i in range(0, weight.shape[0], words):
        block = (hidden, weight[i : i + words], bias[i : i + words], finite)
        sums.append(checkpoint(_block, *block, use_reentrant=False) if torch.is_grad_enabled() else _block(*block))
    total = torch.logsumexp(torch.stack(sums), dim=0)
    # NaN from an infinite logit, as in torch.nn.functional.cross_entropy; infinity if the target's is -infinity.
    return total * torch.where(total.isposinf(), torch.nan, 1.0) - infinite


def full_softmax(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, precision: str, chunk_bytes: int
) -> Tensor:
    hidden, weight = rounded(hidden, precision), rounded(weight, precision)
    words = max(1, chunk_bytes // (hidden.element_size() * max(1, min(ROWS, hidden.shape[0]))))
    parts = [
        _full_losses(hidden[i : i + ROWS], targets[i : i + ROWS], weight, bias, words)
        for i in range(0, max(1, hidden.shape[0]), ROWS)
    ]
    return torch.cat(parts)


def _sampled_losses(hidden: Tensor, true_rows: Tensor, sample_rows: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
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
    return in_chunks(_sampled_losses, rounded(hidden, precision), rows, offsets, ids, chunk_bytes)


def _negative_losses(
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
    losses = functools.partial(_negative_losses, share=negatives / len(samples), hits=log_noise is not None)
    return in_chunks(losses, rounded(hidden, precision), rows, offsets, ids, chunk_bytes)
