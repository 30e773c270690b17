"""scalar_mix in C++: layers read once for all mixes; statistics and sums in float64, alike for any thread count."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._native import describe
from elmo_fast.ops.scalar_mix.op import ScalarMixArguments
from elmo_fast.ops.scalar_mix.reference import dropped


def run(a: ScalarMixArguments) -> Tensor:
    coefficients = a.gammas.unsqueeze(1) * torch.softmax(a.scalars, dim=1)
    counted = None if a.statistics_mask is None else a.statistics_mask.contiguous()
    mixes: Tensor = torch.ops.elmo_fast.scalar_mix(a.layers, coefficients, counted, a.layer_norm, a.eps)[0]
    return dropped(mixes, a.dropout, a.seed)


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    first = a.layers[0]
    mixes = first.new_empty(a.coefficients.shape[0], *first.shape)
    return mixes, first.new_empty(2, len(a.layers), dtype=torch.float64)


describe("scalar_mix", _fake, Backward())
