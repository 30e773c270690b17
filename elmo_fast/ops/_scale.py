"""float16's scale: the power of two that takes the largest gradient to a known size. The host reads none of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import largest, power_of_two


def strips(rows: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and constants of the kernels that go over rows in strips of at least 64, 2048 elements at a time."""
    columns = _triton.ceil_power_of_two(width, 16, 256)
    at_once = 2048 // columns
    strip = max(64, at_once)
    grid = _triton.cdiv(rows, strip), _triton.cdiv(width, columns)
    return grid, {"STRIP": strip, "BR": at_once, "BC": columns}


def scale_of(gradients: Sequence[Tensor], lift: int = 0, count: Tensor | None = None) -> Tensor:
    """[2]: the power of two that takes the largest |gradient| into (2^(lift - 1), 2^lift], and its inverse.

    gradients [..., width], of any strides; rows from `count` on, NaN and infinity are left out.
    """
    flat = [each.flatten(0, -2) for each in gradients]
    tiled = [strips(*each.shape) for each in flat]
    sizes = [grid[0] * grid[1] for grid, _ in tiled]
    most = flat[0].new_empty(sum(sizes))
    for each, (grid, constants), to in zip(flat, tiled, most.split(sizes), strict=True):
        _triton.launch(largest, grid, each, count, to, *each.shape, *each.stride(), **constants)
    return fitting(most, lift)


def fitting(most: Tensor, lift: int, guess: Tensor | None = None) -> Tensor:
    """As `scale_of`, of the largest of `most` [n]; but `guess` [2] where that takes it into 2^-1 .. 2^15."""
    scale = torch.empty(2, dtype=torch.float32, device=most.device)
    _triton.launch(power_of_two, (1,), most, 1, scale, guess, most.numel(), LIFT=lift, BLOCK=1024)
    return scale
