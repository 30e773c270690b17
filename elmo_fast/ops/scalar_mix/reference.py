"""scalar_mix in plain torch: the definition; and its dropout, which Philox decides alike for every backend.

Philox 4x32-10 (_sampling.py) is keyed by the seed's two halves.
Its counter is (element's number, of which 64 bits, the mix, 0), and its four results serve four elements LANES apart:
element e takes result (e // LANES) % 4 of number e // (4 * LANES) * LANES + e % LANES. It is kept where that result,
a whole number below 2^32, is not below p * 2^32.
"""

import torch
from torch import Tensor

from elmo_fast.ops._sampling import LOW, philox4x32
from elmo_fast.ops.scalar_mix.op import ScalarMixArguments

LANES = 1024


def threshold(p: float) -> int:
    """Results below it are dropped."""
    return min(round(p * 2**32), LOW)


def kept(shape: torch.Size, p: float, seed: Tensor) -> Tensor:
    """bool [M, ...] of `shape`: which elements of the mixes stay, each with probability 1 - p."""
    mixes, n = shape[0], shape[1:].numel()
    blocks = -(-n // (4 * LANES))
    number = torch.arange(blocks * LANES, device=seed.device).expand(mixes, -1)
    mix = torch.arange(mixes, device=seed.device)[:, None].expand_as(number)
    key = (seed & LOW, (seed >> 32) & LOW)
    results = philox4x32(key, (number & LOW, number >> 32, mix, torch.zeros_like(number)))
    lanes = torch.stack([result.view(mixes, blocks, LANES) for result in results], 2)
    return (lanes.view(mixes, 4 * blocks * LANES)[:, :n] >= threshold(p)).view(shape)


def dropped(mixes: Tensor, p: float, seed: Tensor | None) -> Tensor:
    """The mixes after dropout: what stays times 1 / (1 - p), the rest 0; themselves where seed is None."""
    return mixes if seed is None else torch.where(kept(mixes.shape, p, seed), mixes * (1 / (1 - p)), 0)


def normalised(layer: Tensor, counted: Tensor | None, eps: float) -> Tensor:
    """(layer - mean) / sqrt(variance + eps), ONE mean and biased variance over all elements at counted positions."""
    if counted is None:
        counted = torch.ones(layer.shape[:-1], dtype=torch.bool, device=layer.device)
    counted = counted.unsqueeze(-1)
    number = counted.to(layer.dtype).sum() * layer.shape[-1]
    # What does not count is left out, not multiplied by zero: it may be NaN.
    mean = layer.where(counted, 0).sum() / number
    variance = (layer - mean).where(counted, 0).square().sum() / number
    return (layer - mean) / torch.sqrt(variance + eps)


def run(a: ScalarMixArguments) -> Tensor:
    dtype, layers = a.layers[0].dtype, [layer.to(a.scalars.dtype) for layer in a.layers]
    if a.layer_norm:
        layers = [normalised(layer, a.statistics_mask, a.eps) for layer in layers]
    coefficients = a.gammas.unsqueeze(1) * torch.softmax(a.scalars, dim=1)
    if len(coefficients) == 0:
        return torch.tensordot(coefficients, torch.stack(layers), 1).to(dtype)
    mixes = torch.stack(
        [sum((c * x for c, x in zip(row, layers, strict=True)), torch.zeros_like(layers[0])) for row in coefficients]
    )
    return dropped(mixes, a.dropout, a.seed).to(dtype)
