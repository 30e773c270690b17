"""log_uniform_sample in C++: the same generator and the same rule, word for word."""

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported


def run(num_samples: int, num_words: int, seed: int, offset: int) -> tuple[Tensor, Tensor]:
    """As elmo_fast.ops.log_uniform_sample, on the CPU."""
    ids, tries = torch.ops.elmo_fast.log_uniform_sample(num_samples, num_words, seed, offset)
    return ids, tries


def _fake(num_samples: int, num_words: int, seed: int, offset: int) -> tuple[Tensor, Tensor]:
    return torch.empty(num_samples, dtype=torch.int64), torch.empty((), dtype=torch.int64)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::log_uniform_sample", _fake)
