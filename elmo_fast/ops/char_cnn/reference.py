"""char_cnn in plain torch: the definition."""

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.ops._precision import rounded
from elmo_fast.ops._table_rows import first_rows


def char_cnn(
    ids: Tensor,
    embedding: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    count: Tensor | None,
    tanh: bool,
    precision: str,
) -> Tensor:
    characters = F.embedding(ids, rounded(embedding, precision)).transpose(1, 2)  # [N, E, C]
    maxima = []
    for weight, bias in zip(weights, biases, strict=True):
        windows = _convolved(characters, rounded(weight, precision), bias)  # [N, n_k, C-k+1]
        maxima.append(windows.max(dim=2).values)
    features = torch.cat(maxima, dim=1)
    return first_rows(torch.tanh(features) if tanh else torch.relu(features), count)


def _convolved(characters: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.numel():
        return F.conv1d(characters, weight, bias)
    # torch's convolution rejects zero filters, and drops the bias if there are zero dimensions.
    return torch.einsum("newk,fek->nfw", characters.unfold(2, weight.shape[2], 1), weight) + bias[:, None]
