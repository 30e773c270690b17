"""log_uniform_sample on the GPU: the same generator, the same arithmetic, one thread block; the host does not wait."""

import torch
from torch import Tensor

from elmo_fast.ops._native import describe
from elmo_fast.ops.log_uniform_sample.native import fake


def run(
    num_samples: int, num_words: int, seed: int | Tensor, offset: int | Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Run elmo_fast.ops.log_uniform_sample; the kernel reads seed and offset if they are tensors."""
    numbers = [number if isinstance(number, int) else 0 for number in (seed, offset)]
    tensors = [number if isinstance(number, Tensor) else None for number in (seed, offset)]
    return torch.ops.elmo_fast.log_uniform_sample_cuda(num_samples, num_words, *numbers, *tensors, device)


describe("log_uniform_sample_cuda", fake)
