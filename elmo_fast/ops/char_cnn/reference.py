"""The definition, in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.ops._precision import rounded


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    return None


def run(
    ids: Tensor,
    embedding: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    *,
    activation: str,
    precision: str,
    count: Tensor | None,
) -> Tensor:
    characters = F.embedding(ids, rounded(embedding, precision)).transpose(1, 2)  # [N, E, C]
    maxima = []
    for weight, bias in zip(weights, biases, strict=True):
        windows = _convolved(characters, rounded(weight, precision), bias)  # [N, n_k, C-k+1]
        maxima.append(windows.max(dim=2).values)
    features = torch.cat(maxima, dim=1)
    return masked(torch.relu(features) if activation == "relu" else torch.tanh(features), count)


def _convolved(characters: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.numel():
        return F.conv1d(characters, weight, bias)
    # torch's convolution refuses no filters, and forgets the bias where there are no dimensions.
    return torch.einsum("newk,fek->nfw", characters.unfold(2, weight.shape[2], 1), weight) + bias[:, None]


def masked(features: Tensor, count: Tensor | None) -> Tensor:
    """0, and no gradient, from row `count` on."""
    if count is None:
        return features
    return torch.where((torch.arange(features.shape[0], device=features.device) < count)[:, None], features, 0)
