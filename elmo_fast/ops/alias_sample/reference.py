"""alias_sample in plain torch: the definition.

Its samples and tables are bitwise equal to those of C++: every step is one IEEE operation, or a comparison.
"""

import torch
from torch import Tensor

from elmo_fast.ops._sampling import uniforms


def alias_pairs(shares: Tensor) -> tuple[Tensor, Tensor]:
    """Pair words by Vose's method: each word with less than its share of the table is topped up by one with more."""
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
    chances = torch.tensor(thresholds, dtype=torch.float64, device=shares.device)
    return chances, torch.tensor(aliases, dtype=torch.int64, device=shares.device)


def alias_sample(num_samples: int, thresholds: Tensor, aliases: Tensor, seed: int, offset: int) -> Tensor:
    place, chance = uniforms(seed, offset, 0, num_samples).view(-1, 2).unbind(1)
    column = (place * len(thresholds)).long()
    return torch.where(chance < thresholds[column], column, aliases[column])
