"""scalar_mix in plain torch: the definition."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops.scalar_mix.dropout import dropped


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Plain torch serves every device and dtype."""
    return None


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


def run(
    layers: Sequence[Tensor],
    scalars: Tensor,
    gammas: Tensor,
    *,
    layer_norm: bool,
    statistics_mask: Tensor | None,
    eps: float,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    dtype, layers = layers[0].dtype, [layer.to(scalars.dtype) for layer in layers]
    if layer_norm:
        layers = [normalised(layer, statistics_mask, eps) for layer in layers]
    coefficients = gammas.unsqueeze(1) * torch.softmax(scalars, dim=1)
    if len(coefficients) == 0:
        return torch.tensordot(coefficients, torch.stack(layers), 1).to(dtype)
    mixes = torch.stack(
        [sum((c * x for c, x in zip(row, layers, strict=True)), torch.zeros_like(layers[0])) for row in coefficients]
    )
    return dropped(mixes, dropout, seed).to(dtype)
