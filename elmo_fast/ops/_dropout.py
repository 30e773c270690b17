"""Dropout as a function of seed, offset and row: the same numbers from Triton as from plain torch."""

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._sampling import DROPOUT, LOW, philox4x32


def dropout_factors(
    probability: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int]
) -> Tensor:
    """Sample by what dropout multiplies each element: 0 with probability p, otherwise 1 / (1 - p).

    Nothing is read on the host, and a CUDA graph may hold the call: a replay samples by the offset that it finds. The
    numbers are a function of the arguments: word i % 4 of Philox block (plane · ceil(N / 4) + i // 4, first_row + row,
    offset), key `seed`, below p · 2^32 drops element i of a row.

    Args:
        probability: p, 0 < p < 1
        seed: 0 to 2^63 - 1
        offset: [] or [1] int64, on the device that samples
        first_row: number of the first row
        shape: (planes, rows, N)

    Returns:
        [planes, rows, N] float32
    """
    threshold, scale = min(round(probability * 2**32), LOW), 1 / (1 - probability)
    if has_kernel(offset.device):
        from elmo_fast.ops._kernels import launch_dropout

        return launch_dropout(threshold, scale, seed, offset, first_row, shape)
    return plain_factors(threshold, scale, seed, offset, first_row, shape)


def plain_factors(
    threshold: int, scale: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int]
) -> Tensor:
    """Compute `dropout_factors` of the probability threshold / 2^32 in plain torch."""
    planes, rows, width = shape
    plane, row, block = (torch.arange(count, device=offset.device) for count in (planes, rows, _triton.cdiv(width, 4)))
    first = (plane[:, None] * len(block) + block)[:, None, :].expand(planes, rows, -1)
    second, at = (first_row + row)[None, :, None].expand_as(first), offset.reshape(1, 1, 1).expand_as(first)
    counter = (first & LOW, second & LOW, at & LOW, (at >> 32) | DROPOUT)
    bits = torch.stack(philox4x32((seed & LOW, seed >> 32), counter), dim=-1).flatten(2)[:, :, :width]
    return (bits >= threshold).to(torch.float32) * scale


def has_kernel(device: torch.device) -> bool:
    """Return whether Triton samples on this device."""
    return _triton.unsupported(device, torch.float32, "float32") is None
