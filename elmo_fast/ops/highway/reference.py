"""The definition, in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.ops._precision import rounded


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    return None


def rows_that_count(x: Tensor, count: Tensor) -> Tensor:
    """[N, 1] bool: the rows before `count`."""
    return (torch.arange(x.shape[0], device=x.device) < count)[:, None]


def run(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    *,
    precision: str,
    count: Tensor | None,
) -> Tensor:
    if count is not None:
        counts = rows_that_count(x, count)
        y = run(
            x.where(counts, 0), weights, biases, projection_weight, projection_bias, precision=precision, count=None
        )
        return y.where(counts, 0)
    for weight, bias in zip(weights, biases, strict=True):
        products = F.linear(rounded(x, precision), rounded(weight, precision), bias)
        transform, gate = products.chunk(2, dim=1)
        transform, gate = torch.relu(transform), torch.sigmoid(gate)
        x = gate * x + (1 - gate) * transform
    if projection_weight is None:
        return x
    return F.linear(rounded(x, precision), rounded(projection_weight, precision), projection_bias)
