"""scalar_mix in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.ops.scalar_mix.dropout import dropped
from elmo_fast.ops.scalar_mix.op import ScalarMixArguments


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
