"""alias_sample in C++: the same pairing, the same generator and the same rule, bit for bit."""

import torch
from torch import Tensor

from elmo_fast.ops._native import describe


def pairs(shares: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.elmo_fast.alias_pairs(shares)


def run(num_samples: int, thresholds: Tensor, aliases: Tensor, seed: int, offset: int) -> Tensor:
    return torch.ops.elmo_fast.alias_sample(num_samples, thresholds, aliases, seed, offset)


describe("alias_pairs", lambda a: (torch.empty_like(a.shares), torch.empty_like(a.shares, dtype=torch.int64)))
describe("alias_sample", lambda a: a.aliases.new_empty(a.num_samples))
