"""The definition, in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.ops._precision import rounded
from elmo_fast.ops.highway.op import HighwayArguments


def rows_that_count(x: Tensor, count: Tensor) -> Tensor:
    """[N, 1] bool: the rows before `count`."""
    return (torch.arange(x.shape[0], device=x.device) < count)[:, None]


def run(a: HighwayArguments) -> Tensor:
    if a.rows is not None:
        counts = rows_that_count(a.x, a.rows)
        return run(a._replace(x=a.x.where(counts, 0), rows=None)).where(counts, 0)
    x = a.x
    for weight, bias in zip(a.weights, a.biases, strict=True):
        products = F.linear(rounded(x, a.precision), rounded(weight, a.precision), bias)
        transform, gate = products.chunk(2, dim=1)
        transform, gate = torch.relu(transform), torch.sigmoid(gate)
        x = gate * x + (1 - gate) * transform
    if a.projection_weight is None:
        return x
    return F.linear(rounded(x, a.precision), rounded(a.projection_weight, a.precision), a.projection_bias)
