"""The one table of tolerances: for the tests, and for the check of the kernels on the user's GPU."""

import math

from torch import Tensor

# Factor by which a kernel's rms or largest error may exceed plain torch's, as a different order of summation may.
RATIO = 1.5
# Small term, relative to the largest |truth|: a few units in the last place of the precision in use. A step of int8
# is 1/127 of its row's largest number: if the float32 of both differ in the last place, one may take the next step.
SMALL = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3, "int8": 1e-2}


def why_worse(name: str, actual: Tensor, torchs: Tensor, truth: Tensor, precision: str) -> str | None:
    """Return one sentence if an error of `actual` exceeds its bound, else None.

    The bound of |actual - truth|, rms and largest, is RATIO * |torch's - truth| + SMALL * max|truth|. A NaN that the
    truth does not have exceeds every bound.
    """
    if actual.shape != truth.shape:
        return f"{name}: shape {tuple(actual.shape)}, expected {tuple(truth.shape)}"
    if truth.numel() == 0:
        return None
    truth = truth.double()
    scale = truth.abs().max().item()
    for kind, size in (("largest", lambda e: e.abs().max()), ("rms", lambda e: e.square().mean().sqrt())):
        error = size(actual.double() - truth).item()
        bound = RATIO * size(torchs.double() - truth).item() + SMALL[precision] * max(scale, 1e-30)
        if math.isnan(error) or error > bound:
            return f"{name}: {kind} error {error:.3e} exceeds {bound:.3e} at {precision}"
    return None
