"""log_uniform_sample on the GPU: the same generator, the same arithmetic, one thread block; nothing waits for it."""

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import cuda_unsupported as unsupported

__all__ = ["run", "unsupported"]


def run(
    num_samples: int, num_words: int, seed: int | Tensor, offset: int | Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """As elmo_fast.ops.log_uniform_sample; tensors are read by the kernel."""
    numbers = [number if isinstance(number, int) else 0 for number in (seed, offset)]
    tensors = [number if isinstance(number, Tensor) else None for number in (seed, offset)]
    ids, tries = torch.ops.elmo_fast.log_uniform_sample_cuda(num_samples, num_words, *numbers, *tensors, device)
    return ids, tries


def _fake(
    num_samples: int,
    num_words: int,
    seed: int,
    offset: int,
    seed_more: Tensor | None,
    offset_more: Tensor | None,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    ids = torch.empty(num_samples, dtype=torch.int64, device=device)
    return ids, torch.empty((), dtype=torch.int64, device=device)


if _native.C is not None:
    torch.library.register_fake("elmo_fast::log_uniform_sample_cuda", _fake)
