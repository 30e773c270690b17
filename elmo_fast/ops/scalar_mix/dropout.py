"""The dropout of scalar_mix in plain torch: which elements Philox keeps, alike for every backend.

Philox 4x32-10 (_sampling.py) is keyed by the seed's two halves.
Its counter is (element's number, of which 64 bits, the mix, 0), and its four results serve four elements LANES apart:
element e takes result (e // LANES) % 4 of number e // (4 * LANES) * LANES + e % LANES. It is kept where that result,
a whole number below 2^32, is not below p * 2^32.
"""

import torch
from torch import Tensor

from elmo_fast.ops._sampling import LOW, philox4x32

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
