"""The one table of tolerances. A kernel passes when its error against float64 is no worse than plain torch's at the
same precision (times `RATIO`) plus a small term; `assert_close` is for what two sides know to full precision."""

import torch
from torch import Tensor

# The factor by which a kernel's rms or largest error may exceed plain torch's: orders of summation differ by chance.
RATIO = 1.5
# The small term, relative to the largest |truth|: a few units in the last place of the precision in use. Of int8 a step
# is 1/127 of its row's largest number: where two sides' float32 differ in the last place, one takes the next step.
SMALL = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3, "int8": 1e-2}


def assert_no_worse(name: str, ours: Tensor, torchs: Tensor, truth: Tensor, precision: str) -> None:
    """|ours - truth| <= RATIO * |torch's - truth| + SMALL * max|truth|, rms and largest; no NaN passes."""
    assert ours.shape == truth.shape, f"{name}: shape {tuple(ours.shape)}, wanted {tuple(truth.shape)}"
    if truth.numel() == 0:
        return
    truth = truth.double()
    scale = truth.abs().max().item()
    for kind, size in (("largest", lambda e: e.abs().max()), ("rms", lambda e: e.square().mean().sqrt())):
        error = size(ours.double() - truth).item()
        bound = RATIO * size(torchs.double() - truth).item() + SMALL[precision] * max(scale, 1e-30)
        assert error <= bound, f"{name}: {kind} error {error:.3e} exceeds {bound:.3e} at {precision}"


def assert_close(name: str, ours: Tensor, truth: Tensor, precision: str = "float32") -> None:
    """|ours - truth| <= 10 * SMALL * max(|truth|, 1): for results that both sides compute in the same precision."""
    torch.testing.assert_close(
        ours.double(),
        truth.double(),
        rtol=10 * SMALL[precision],
        atol=10 * SMALL[precision],
        msg=lambda m: f"{name}: {m}",
    )
