"""highway in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.ops._precision import linear, operand
from elmo_fast.ops._table_rows import first_rows
from elmo_fast.ops.highway.op import HighwayArguments


def run(a: HighwayArguments) -> Tensor:
    x = first_rows(a.x, a.rows)
    for weight, bias in zip(a.weights, a.biases, strict=True):
        products = linear(x, operand(weight, a.precision), a.precision, bias)
        transform, gate = products.chunk(2, dim=1)
        transform, gate = torch.relu(transform), torch.sigmoid(gate)
        x = gate * x + (1 - gate) * transform
    if a.projection_weight is not None:
        x = linear(x, operand(a.projection_weight, a.precision), a.precision, a.projection_bias)
    return first_rows(x, a.rows)
