"""alias_sample in C++: the same pairing, the same generator and the same rule, bit for bit."""

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported


def pairs(shares: Tensor) -> tuple[Tensor, Tensor]:
    thresholds, aliases = torch.ops.elmo_fast.alias_pairs(shares)
    return thresholds, aliases


def run(num_samples: int, thresholds: Tensor, aliases: Tensor, seed: int, offset: int) -> Tensor:
    ids: Tensor = torch.ops.elmo_fast.alias_sample(num_samples, thresholds, aliases, seed, offset)
    return ids


def _fake_pairs(shares: Tensor) -> tuple[Tensor, Tensor]:
    return shares.new_empty(shares.shape), shares.new_empty(shares.shape, dtype=torch.int64)


def _fake(num_samples: int, thresholds: Tensor, aliases: Tensor, seed: int, offset: int) -> Tensor:
    return aliases.new_empty(num_samples)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::alias_pairs", _fake_pairs)
    torch.library.register_fake("elmo_fast::alias_sample", _fake)
