"""float32 on tensor cores holds float32's tolerances even where these cut off as many bits as any was found to."""

import numpy as np
import pytest
import torch

from tests.ops.lstm_cases import check, make
from tests.ptx import warps
from tests.ptx.truncation import tf32x3, truncated
from tests.tolerances import assert_no_worse

DRAWN = {"normal": lambda draw, shape: draw.standard_normal(shape), "positive": lambda draw, shape: draw.random(shape)}


def product(drawn, depth, inner=2048):
    """(ours, torch's, float64's) of a product of `inner` terms."""
    draw = np.random.default_rng(0)
    a, b = (DRAWN[drawn](draw, shape).astype(np.float32) for shape in ((16, inner), (inner, 16)))
    ours = torch.from_numpy(tf32x3(a, b, depth))
    a, b = torch.from_numpy(a), torch.from_numpy(b)
    return ours, a @ b, a.double() @ b.double()


@pytest.mark.parametrize("drawn", DRAWN)
def test_sums_of_32_products_rounded_to_float32_hold_the_table(drawn):
    assert_no_worse(drawn, *product(drawn, 32), "float32")


@pytest.mark.parametrize("drawn", DRAWN)
def test_sums_of_all_products_do_not(drawn):
    """The test above can fail, and why no tile is deeper than 32."""
    with pytest.raises(AssertionError, match="error"):
        assert_no_worse(drawn, *product(drawn, 2048), "float32")


@pytest.mark.parametrize("batch", [3, 40])
def test_projected_lstm_holds_the_table(emulator, batch, monkeypatch):
    """Forwards and backwards, as compiled."""
    monkeypatch.setattr(warps, "summed", truncated)
    before = emulator.counts.multiplications
    check(make(batch, 2, 70, 72, 288, directions=1), "triton", reverse=(False,))
    assert emulator.counts.multiplications > before, "no tensor core has multiplied float32"
