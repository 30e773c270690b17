"""What the losses over a shared sample of words have in common."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from elmo_fast.ops._precision import rounded


def fake(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Shapes of the C++ kernels' results: [N], [N], and [N, S] if that fits into `chunk_bytes` and is cached."""
    count, samples = a.hidden.shape[0], a.rows.shape[0] - a.hidden.shape[0]
    kept = a.keep and (count <= 1 or count * samples * a.hidden.element_size() <= a.chunk_bytes)
    losses = a.hidden.new_empty(count)
    return losses, losses.new_empty(count), a.hidden.new_empty(count if kept else 0, samples)


def in_chunks(losses: Callable[..., Tensor], a: Any, *more: Any) -> Tensor:
    """losses(hidden, targets' rows, samples' rows, offsets, ids, *more), called with as many rows as have scores of
    `chunk_bytes`. If that takes several calls, the backward pass computes the scores again."""
    rows, offsets, ids = a.gathered()
    hidden, rows, count = rounded(a.hidden, a.precision), rounded(rows, a.precision), a.hidden.shape[0]
    step = max(1, min(count, a.chunk_bytes // (a.samples.shape[0] * hidden.element_size())))
    found = []
    for i in range(0, max(count, 1), step):
        part = slice(i, min(i + step, count))
        offsets_here, ids_here = (torch.cat([each[:count][part], each[count:]]) for each in (offsets, ids))
        chunk = (hidden[part], rows[:count][part], rows[count:], offsets_here, ids_here, *more)
        found.append(losses(*chunk) if count <= step else checkpoint(losses, *chunk, use_reentrant=False))
    return torch.cat(found)
