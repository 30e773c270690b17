"""log_uniform_sample in C++: the same generator and the same rule, word for word."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._native import describe


def run(num_samples: int, num_words: int, seed: int, offset: int) -> tuple[Tensor, Tensor]:
    return torch.ops.elmo_fast.log_uniform_sample(num_samples, num_words, seed, offset)


def fake(a: Any) -> tuple[Tensor, Tensor]:
    """Allocate ids and tries, on the arguments' device if they name one."""
    device = getattr(a, "device", None)
    return torch.empty(a.num_samples, dtype=torch.int64, device=device), torch.empty(
        (), dtype=torch.int64, device=device
    )


describe("log_uniform_sample", fake)
