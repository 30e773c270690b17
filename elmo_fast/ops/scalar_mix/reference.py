"""scalar_mix in plain torch: the definition, and its dropout, which Philox decides alike for every backend.

Philox 4x32-10 (_sampling.py) is keyed by the seed's two halves. Its counter is (element's number, of which 64 bits, the
mix, 0), and its four results serve four elements LANES apart: element e takes result (e // LANES) % 4 of number e // (4
* LANES) * LANES + e % LANES. It is kept if that result, a whole number below 2^32, is at least p * 2^32.
"""

import torch
from torch import Tensor

from elmo_fast.ops._sampling import LOW, philox4x32

LANES = 1024


def threshold(p: float) -> int:
    """Return the number below which results are dropped."""
    return min(round(p * 2**32), LOW)


def keep_mask(shape: torch.Size, p: float, seed: Tensor) -> Tensor:
    """Return which elements of the mixes are kept, bool [M, ...] of `shape`, each with probability 1 - p."""
    mixes, n = shape[0], shape[1:].numel()
    blocks = -(-n // (4 * LANES))
    number = torch.arange(blocks * LANES, device=seed.device).expand(mixes, -1)
    mix = torch.arange(mixes, device=seed.device)[:, None].expand_as(number)
    key = (seed & LOW, (seed >> 32) & LOW)
    results = philox4x32(key, (number & LOW, number >> 32, mix, torch.zeros_like(number)))
    lanes = torch.stack([result.view(mixes, blocks, LANES) for result in results], 2)
    return (lanes.view(mixes, 4 * blocks * LANES)[:, :n] >= threshold(p)).view(shape)


def dropped(mixes: Tensor, p: float, seed: Tensor | None) -> Tensor:
    """Apply dropout to the mixes: kept elements times 1 / (1 - p), the rest 0; unchanged if seed is None."""
    return mixes if seed is None else torch.where(keep_mask(mixes.shape, p, seed), mixes * (1 / (1 - p)), 0)


def total(x: Tensor) -> Tensor:
    """Sum everything, dimension by dimension: torch's threads share a single sum, and their number rounds it."""
    while x.dim():
        x = x.sum(-1)
    return x


def per_row(number: Tensor, layer: Tensor) -> Tensor:
    """Expand a number to [..., 1] of a layer, so that its gradient is summed like `total`."""
    return number.expand(layer.shape[:-1]).unsqueeze(-1)


def normalised(layer: Tensor, counted: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Compute layer - mean and 1 / sqrt(variance + eps), with ONE mean and variance over all counted positions.

    Both are over all elements at those positions; the variance is biased.
    """
    if counted is None:
        counted = torch.ones(layer.shape[:-1], dtype=torch.bool, device=layer.device)
    counted = counted.unsqueeze(-1)
    number = counted.sum() * layer.shape[-1]
    # Elements that do not count are replaced, not multiplied by zero: they may be NaN.
    off = layer - per_row(total(layer.where(counted, 0)) / number, layer)
    variance = total(off.where(counted, 0).square()) / number
    return off, 1 / torch.sqrt(variance + eps)


def scalar_mix(
    layers: list[Tensor],
    scalars: Tensor,
    gammas: Tensor,
    layer_norm: bool,
    counted: Tensor | None,
    eps: float,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    dtype, layers = layers[0].dtype, [layer.to(scalars.dtype) for layer in layers]
    coefficients = gammas.unsqueeze(1) * torch.softmax(scalars, dim=1)
    if len(coefficients) == 0:
        return torch.tensordot(coefficients, torch.stack(layers), 1).to(dtype)
    if layer_norm and layers[0].numel():  # without elements there is no mean
        pairs = [normalised(layer, counted, eps) for layer in layers]
        layers, coefficients = [off for off, _ in pairs], coefficients * torch.stack([inverse for _, inverse in pairs])
    mixes, shape = [], layers[0].shape[:-1]
    # A number for each row of a layer, as in `per_row`.
    for row in coefficients.view(*coefficients.shape, *[1] * len(shape), 1).expand(-1, -1, *shape, 1):
        first, *others = row.unbind()
        mixes.append(first * layers[0])
        for coefficient, layer in zip(others, layers[1:], strict=True):
            mixes[-1].addcmul_(coefficient, layer)
    return dropped(torch.stack(mixes) if len(mixes) > 1 else mixes[0].unsqueeze(0), dropout, seed).to(dtype)
