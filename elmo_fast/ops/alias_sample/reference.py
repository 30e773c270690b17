"""alias_sample in numpy: the definition. Its draws and tables are those of C++, bit for bit: every step is one IEEE
operation, or a comparison."""

import numpy as np
import torch
from torch import Tensor

from elmo_fast.ops._philox import uniforms


def pairs(shares: Tensor) -> tuple[Tensor, Tensor]:
    """Vose's pairing: words with less than their share of the table, each topped up by one that has more."""
    left = shares.tolist()
    thresholds, aliases = [1.0] * len(left), list(range(len(left)))
    less = [k for k, share in enumerate(left) if share < 1]
    more = [k for k, share in enumerate(left) if share >= 1]
    while less and more:
        small, large = less.pop(), more[-1]
        thresholds[small], aliases[small] = left[small], large
        left[large] = (left[large] + left[small]) - 1.0
        if left[large] < 1:
            less.append(more.pop())
    device = shares.device
    return (
        torch.tensor(thresholds, dtype=torch.float64, device=device),
        torch.tensor(aliases, dtype=torch.int64, device=device),
    )


def run(num_samples: int, thresholds: Tensor, aliases: Tensor, seed: int, offset: int) -> Tensor:
    place, chance = uniforms(seed, offset, 0, num_samples).reshape(-1, 2).T
    column = (place * len(thresholds)).astype(np.int64)
    kept = chance < thresholds.numpy()[column]
    return torch.from_numpy(np.where(kept, column, aliases.numpy()[column]))
