"""float32 on tensor cores holds float32's tolerances even where these cut off as many bits as any was found to."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from elmo_fast.ops._kernels import plus_product
from elmo_fast.ops._triton import launch
from tests.ops.lstm_cases import check, make
from tests.ptx import warps
from tests.ptx.truncation import tf32x3, truncated
from tests.tolerances import assert_no_worse

DRAWN = {"normal": lambda draw, shape: draw.standard_normal(shape), "positive": lambda draw, shape: draw.random(shape)}


def operands(drawn, inner):
    """Of a product of `inner` terms."""
    draw = np.random.default_rng(0)
    shapes = (16, inner), (inner, 16)
    return [torch.from_numpy(DRAWN[drawn](draw, shape).astype(np.float32)) for shape in shapes]


def product(drawn, depth, inner=2048):
    """(ours, torch's, float64's)."""
    a, b = operands(drawn, inner)
    return torch.from_numpy(tf32x3(a.numpy(), b.numpy(), depth)), a @ b, a.double() @ b.double()


@pytest.mark.parametrize("drawn", DRAWN)
def test_sums_of_32_products_rounded_to_float32_hold_the_table(drawn):
    assert_no_worse(drawn, *product(drawn, 32), "float32")


@pytest.mark.parametrize("drawn", DRAWN)
def test_sums_of_all_products_do_not(drawn):
    """The test above can fail, and why no tile is deeper than 32."""
    with pytest.raises(AssertionError, match="error"):
        assert_no_worse(drawn, *product(drawn, 2048), "float32")


@triton.jit
def multiply(a, b, out, inner, DEPTH: tl.constexpr, PRECISION: tl.constexpr):
    r, k = tl.arange(0, 16), tl.arange(0, DEPTH)
    total = tl.zeros((16, 16), tl.float32)
    for start in range(0, inner, DEPTH):
        left = tl.load(a + r[:, None] * inner + start + k[None, :])
        right = tl.load(b + (start + k)[:, None] * 16 + r[None, :])
        total = plus_product(total, left, right, PRECISION)
    tl.store(out + r[:, None] * 16 + r[None, :], total)


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("precision", ["tf32x3", "ieee"])
def test_products_hold_the_table_as_compiled(emulator, precision, drawn, monkeypatch):
    """On tensor cores that cut off and, as on small cards, as exact products, whose sums are no chain of 2,048."""
    monkeypatch.setattr(warps, "summed", truncated)
    (a, b), out, before = operands(drawn, 2048), torch.empty(16, 16), emulator.counts.multiplications
    launch(multiply, (1,), a, b, out, 2048, DEPTH=32, PRECISION=precision)
    assert (emulator.counts.multiplications > before) == (precision == "tf32x3")
    assert_no_worse(drawn, out, a @ b, a.double() @ b.double(), "float32")


@pytest.mark.parametrize("batch", [3, 40])
def test_projected_lstm_holds_the_table(emulator, batch, monkeypatch):
    """Forwards and backwards, as compiled."""
    monkeypatch.setattr(warps, "summed", truncated)
    before = emulator.counts.multiplications
    check(make(batch, 2, 70, 72, 288, directions=1), "triton", reverse=(False,))
    assert emulator.counts.multiplications > before, "no tensor core has multiplied float32"
