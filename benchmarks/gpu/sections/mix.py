"""The weighted sum of three layers, float32: bound by bytes alone, so measured against the bandwidth of a copy."""

import functools

import torch
from torch import Tensor

from benchmarks.gpu import rivals, roofline
from benchmarks.gpu.compare import Side, compare
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What
from benchmarks.gpu.session import Session
from elmo_fast.ops import scalar_mix

EAGER = "eager"
LAYERS = 3


def run(session: Session) -> None:
    """Forward, then forward + backward, on what 1024 x 20 tokens give."""
    session.serving("float32", "scalar_mix")
    positions, width = (10, 8) if session.quick else (1024 * 22, 1024)
    layers = [session.noise(positions, width) for _ in range(LAYERS)]
    scalars, gamma = session.noise(LAYERS), session.uniform(1) + 0.5
    for train in (False, True):
        what = What(
            f"scalar mix of {LAYERS} x [{positions}, {width}], {'forward + backward' if train else 'forward'}, float32",
            "float32",
            "us",
            work=roofline.scalar_mix(positions, width, LAYERS, 1, train=train),
            aims=() if train else (Aim("share", 0.8),),
        )

        def ours(layers: list[Tensor], scalars: Tensor, gamma: Tensor) -> Tensor:
            return scalar_mix(layers, scalars[None], gamma, backend=session.backend("scalar_mix"))[0]

        make = functools.partial(side, layers, scalars, gamma, train)
        sides = {
            OURS: lambda make=make, ours=ours: make(ours),
            EAGER: lambda make=make: make(rivals.scalar_mix),
            COMPILED: lambda make=make: make(session.compiled(rivals.scalar_mix)),
        }
        exact = [t.double() for t in (*layers, scalars, gamma)]
        truth = side(exact[:LAYERS], exact[LAYERS], exact[LAYERS + 1], train, rivals.scalar_mix)
        compare(session, what, sides, truth.result)


def side(layers: list[Tensor], scalars: Tensor, gamma: Tensor, train: bool, mix: object) -> Side:
    """mix(layers, scalars, gamma) and, training, the gradients of all of them."""
    leaves = [t.detach().requires_grad_(train) for t in (*layers, scalars, gamma)]
    generator = torch.Generator(gamma.device).manual_seed(1)
    cotangent = torch.randn(layers[0].shape, device=gamma.device, generator=generator).to(gamma.dtype)

    def call() -> tuple[Tensor, tuple[Tensor, ...]]:
        with torch.set_grad_enabled(train):
            mixed = mix(leaves[:LAYERS], leaves[LAYERS], leaves[LAYERS + 1])  # type: ignore[operator]
            return mixed, torch.autograd.grad(mixed, leaves, cotangent) if train else ()

    def result() -> dict[str, Tensor]:
        mixed, gradients = call()
        return {"mix": mixed.detach(), **{f"d {i}": gradient for i, gradient in enumerate(gradients)}}

    return Side(call, result)
