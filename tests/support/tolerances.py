"""Assertions by the one table of tolerances, elmo_fast/ops/cases.py. A kernel passes when its error against
float64 is no worse than plain torch's at the same precision (times `RATIO`) plus a small term; `assert_close` is for
what two sides know to full precision."""

import torch
from torch import Tensor

from elmo_fast.ops.cases import RATIO, SMALL, why_worse

__all__ = ["RATIO", "SMALL", "assert_close", "assert_no_worse"]


def assert_no_worse(name: str, actual: Tensor, torchs: Tensor, truth: Tensor, precision: str) -> None:
    """|ours - truth| <= RATIO * |torch's - truth| + SMALL * max|truth|, rms and largest; no NaN passes."""
    why = why_worse(name, actual, torchs, truth, precision)
    assert why is None, why


def assert_close(name: str, actual: Tensor, truth: Tensor, precision: str = "float32") -> None:
    """|ours - truth| <= 10 * SMALL * max(|truth|, 1): for results that both sides compute in the same precision."""
    torch.testing.assert_close(
        actual.double(),
        truth.double(),
        rtol=10 * SMALL[precision],
        atol=10 * SMALL[precision],
        msg=lambda m: f"{name}: {m}",
    )
