"""The weighted sum of three layers, float32: bound by bytes alone, so measured against the bandwidth of a copy."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import Side, beside_torch, compare, side
from benchmarks.gpu.judge import Aim, What
from benchmarks.gpu.session import Session
from elmo_fast.ops import scalar_mix
from elmo_fast.tuning import rivals

LAYERS = 3


def run(session: Session) -> None:
    """Forward, then forward + backward, on what 1024 x 20 tokens give."""
    session.serving("float32", "scalar_mix")
    positions, width = (10, 8) if session.quick else (1024 * 22, 1024)
    inputs = [
        *(session.noise(positions, width) for _ in range(LAYERS)),
        session.noise(LAYERS),
        session.uniform(1) + 0.5,
    ]

    def mixed(train: bool, function: Callable[..., Tensor], dtype: torch.dtype = torch.float32) -> Side:
        leaves = {f"input {i}": t.detach().to(dtype).requires_grad_(train) for i, t in enumerate(inputs)}
        *layers, scalars, gamma = leaves.values()
        return side(lambda: function(layers, scalars, gamma), leaves, train=train)

    def ours(layers: list[Tensor], scalars: Tensor, gamma: Tensor) -> Tensor:
        return scalar_mix(layers, scalars[None], gamma, backend=session.backend("scalar_mix"))[0]

    for train in (False, True):
        what = What(
            f"scalar mix of {LAYERS} x [{positions}, {width}], {'forward + backward' if train else 'forward'}, float32",
            "float32",
            "us",
            work=roofline.scalar_mix(positions, width, LAYERS, 1, train=train),
            aims=() if train else (Aim("share", 0.8),),
        )
        make = functools.partial(mixed, train)
        sides = beside_torch(session, functools.partial(make, ours), make, rivals.scalar_mix)
        compare(session, what, sides, make(rivals.scalar_mix, torch.float64).result)
