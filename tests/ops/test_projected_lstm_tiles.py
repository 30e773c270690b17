"""projected_lstm's tiles: which a card gets, and over how many blocks a sum is split."""

import pytest
import torch

from elmo_fast.ops import _triton
from elmo_fast.ops.projected_lstm import tiling
from elmo_fast.ops.projected_lstm.layer import Layer

CPU = torch.device("cpu")
SUMS = [("project", 1), ("recur", 4)]


def layer(dtype, batch=128, cells=4096):
    return Layer(2, batch, 20, 512, 512, cells, (False, True), 3.0, 3.0, True, dtype)


@pytest.mark.parametrize("batch", [1, 32, 128, 1024])
@pytest.mark.parametrize("kernel", tiling.KERNELS)
@pytest.mark.parametrize("memory", [99, 227])
def test_float32_adds_up_32_products_by_themselves(memory, kernel, batch, monkeypatch):
    """Tensor cores cut their sums off, and a chain of exact products rounds once for each."""
    monkeypatch.setattr(_triton, "shared_memory", lambda _: memory * 1024)
    assert tiling.tiles(layer(torch.float32, batch), kernel, CPU)[0].depth <= 32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("cells", [20, 100, 512])
@pytest.mark.parametrize(("kernel", "gates"), SUMS)
def test_a_sum_has_no_more_parts_than_depths(kernel, gates, cells, dtype):
    tile, parts = tiling.tiles(layer(dtype, 1, cells), kernel, CPU)
    assert parts <= _triton.cdiv(gates * cells, tile.depth)
