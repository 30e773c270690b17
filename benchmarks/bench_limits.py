"""What one core can do at most: the rates that bound every other benchmark.

A float32 product is bound by the rate of products, a layer whose weights are read once per step by the rate of reading:
what fits into the last-level cache is read faster than what comes from memory. An LSTM of the original size reads 42 MB
per direction and step in float32, 21 MB in bfloat16.
"""

import pytest
import torch


@pytest.mark.turns(15)
@pytest.mark.parametrize("side", ["torch.mm"])
def bench_products(timed, side):
    size = 512 if timed.quick else 2048
    a, b = torch.randn(size, size), torch.randn(size, size)
    timed.note("products", f"torch.mm, {size} x {size} x {size}")
    timed("float32 products", lambda: a @ b, amount=2 * size**3 / 1e9, unit="GFLOP/s")


@pytest.mark.turns(15)
@pytest.mark.parametrize("size", [21, 42, 168, 672])
@pytest.mark.parametrize("side", ["torch.sum"])
def bench_reading(timed, size, side):
    data = torch.zeros(size * (1000 if timed.quick else 250_000))
    timed(f"reading {size} MB", data.sum, amount=data.nbytes / 1e9, unit="GB/s")
