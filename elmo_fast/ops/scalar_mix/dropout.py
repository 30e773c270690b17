"""The dropout of scalar_mix in plain torch: which elements Philox keeps, alike for every backend.

Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") is keyed by the seed's two halves.
Its counter is (element's number, of which 64 bits, the mix, 0), and its four results serve four elements LANES apart:
element e takes result (e // LANES) % 4 of number e // (4 * LANES) * LANES + e % LANES. It is kept where that result,
a whole number below 2^32, is not below p * 2^32.
"""

import torch
from torch import Tensor

LANES = 1024
_LOW = 0xFFFFFFFF


def threshold(p: float) -> int:
    """Results below it are dropped."""
    return min(round(p * 2**32), _LOW)


def _wide(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a * b; the product wraps in int64, its bits are right."""
    product = b * a
    return (product >> 32) & _LOW, product & _LOW


def philox(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Ten rounds; all are int64 tensors of numbers below 2^32."""
    (k, m), (a, b, c, d) = key, counter
    for _ in range(10):
        (high_c, low_c), (high_a, low_a) = _wide(0xCD9E8D57, c), _wide(0xD2511F53, a)
        a, b, c, d = high_c ^ b ^ k, low_c, high_a ^ d ^ m, low_a
        k, m = (k + 0x9E3779B9) & _LOW, (m + 0xBB67AE85) & _LOW
    return a, b, c, d


def kept(shape: torch.Size, p: float, seed: Tensor) -> Tensor:
    """bool [M, ...] of `shape`: which elements of the mixes stay, each with probability 1 - p."""
    mixes, n = shape[0], shape[1:].numel()
    blocks = -(-n // (4 * LANES))
    number = torch.arange(blocks * LANES, device=seed.device).expand(mixes, -1)
    mix = torch.arange(mixes, device=seed.device)[:, None].expand_as(number)
    key = (seed & _LOW, (seed >> 32) & _LOW)
    results = philox(key, (number & _LOW, number >> 32, mix, torch.zeros_like(number)))
    lanes = torch.stack([result.view(mixes, blocks, LANES) for result in results], 2)
    return (lanes.view(mixes, 4 * blocks * LANES)[:, :n] >= threshold(p)).view(shape)


def dropped(mixes: Tensor, p: float, seed: Tensor | None) -> Tensor:
    """The mixes after dropout: what stays times 1 / (1 - p), the rest 0; themselves where seed is None."""
    return mixes if seed is None else torch.where(kept(mixes.shape, p, seed), mixes * (1 / (1 - p)), 0)
