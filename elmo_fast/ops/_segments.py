"""Sums of the rows that share a key, on the GPU: the same bits on every run, without a float atomic."""

import math

import torch
from torch import Tensor

from elmo_fast.ops import _kernels
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, launch


def segment_sum(values: Tensor, keys: Tensor, number: int, order: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """out[i] = sum of the rows of `values` whose key is i, in the order of the rows; other keys count nowhere.

    values: [N, D] float32, contiguous; keys: [N] int64, int32 or int16, wide enough for `number` (narrow keys sort
    faster); order: the sorted keys and their former places, if known. Returns [number, D] float32.
    """
    rows, width = values.shape
    out = values.new_empty(number, width)
    if rows == 0 or width == 0:
        return out.zero_()
    ordered, places = torch.sort(keys, stable=True) if order is None else order
    bounds = torch.arange(number + 1, dtype=keys.dtype, device=keys.device)
    offsets = torch.searchsorted(ordered, bounds)
    # At most 2 * chunk + rows / chunk numbers are added one after the other, which is least if both terms are equal.
    chunk = ceil_power_of_two(math.isqrt(rows), 64, 1024)
    block = ceil_power_of_two(width, 16, 128)
    columns = cdiv(width, block)
    partial = values.new_empty(max(1, rows // chunk), width)
    constants = {"CHUNK": chunk, "ROWS": 16 if block == 128 else 32, "BLOCK": block, "num_warps": 4}
    grid = (rows // chunk, columns)
    launch(_kernels.whole_chunks, grid, values, places, ordered, partial, rows, width, **constants)
    launch(_kernels.segments, (number, columns), values, places, offsets, partial, out, width, **constants)
    return out
