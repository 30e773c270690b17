"""The definition, in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional as F

from elmo_fast.ops._precision import rounded
from elmo_fast.ops._table_rows import first_rows
from elmo_fast.ops.highway.op import HighwayArguments


def run(a: HighwayArguments) -> Tensor:
    x = first_rows(a.x, a.rows)
    for weight, bias in zip(a.weights, a.biases, strict=True):
        products = F.linear(rounded(x, a.precision), rounded(weight, a.precision), bias)
        transform, gate = products.chunk(2, dim=1)
        transform, gate = torch.relu(transform), torch.sigmoid(gate)
        x = gate * x + (1 - gate) * transform
    if a.projection_weight is not None:
        x = F.linear(rounded(x, a.precision), rounded(a.projection_weight, a.precision), a.projection_bias)
    return first_rows(x, a.rows)
