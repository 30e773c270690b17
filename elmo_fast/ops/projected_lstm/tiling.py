"""Tiles of the products of projected_lstm, and over how many blocks a long sum is split."""

import torch

from elmo_fast.ops import _triton
from elmo_fast.ops._triton import MULTIPROCESSORS, Tiles, cdiv, ceil_power_of_two
from elmo_fast.ops.projected_lstm.layer import Layer

KERNELS = ("inputs", "cells", "project", "cells_backward", "recur")


def tile_of(layer: Layer, kernel: str, device: torch.device) -> Tiles:
    """The tile for one of KERNELS.

    Few rows stream weights: small tiles, several blocks on each multiprocessor. Many rows are bound by what blocks read
    again and again from the L2: the largest tile that registers hold, about one block per multiprocessor.
    """
    rows = ceil_power_of_two(layer.batch * (layer.time if kernel == "inputs" else 1), 16, 128)
    if layer.dtype == torch.float32 and _triton.is_small(device):
        return Tiles(min(rows, 32), 32, 32, 4, 2)
    if layer.dtype == torch.float32:
        # The depth is how many products are added up by themselves (`_kernels.plus_product`): at most 32.
        if rows <= 32:
            return Tiles(rows, 32, 32, 4, 2 if kernel == "cells" else 3)
        return Tiles(64, 32, 32, 8, 2) if kernel == "cells" else Tiles(64, 64, 32, 8, 3)
    if rows <= 32:
        return Tiles(rows, 32 if kernel == "cells" else 64, 64, 4, 4)
    return Tiles(rows, 64 if kernel in ("cells", "cells_backward") else 128, 64, 8, 3)


def tiles(layer: Layer, kernel: str, device: torch.device) -> tuple[Tiles, int]:
    """A block's tile, and over how many blocks a long sum is split: at most as many as it has tiles' depths."""
    tile, parts = tile_of(layer, kernel, device), 1
    if kernel in ("project", "recur"):
        whole = layer.directions * max(1, cdiv(layer.batch, tile.rows)) * cdiv(layer.size, tile.columns)
        depths = cdiv(layer.cells * (4 if kernel == "recur" else 1), tile.depth)
        while parts < 16 and 2 * parts <= min(depths, MULTIPROCESSORS // whole):
            parts *= 2
    return tile, parts
