"""highway in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.ops._precision import linear, operand
from elmo_fast.ops._table_rows import first_rows


def highway(
    x: Tensor,
    weights: list[Tensor],
    biases: list[Tensor],
    projection_weight: Tensor | None,
    projection_bias: Tensor | None,
    count: Tensor | None,
    precision: str,
) -> Tensor:
    x = first_rows(x, count)
    for weight, bias in zip(weights, biases, strict=True):
        products = linear(x, operand(weight, precision), precision, bias)
        transform, gate = products.chunk(2, dim=1)
        transform, gate = torch.relu(transform), torch.sigmoid(gate)
        x = gate * x + (1 - gate) * transform
    if projection_weight is not None:
        x = linear(x, operand(projection_weight, precision), precision, projection_bias)
    return first_rows(x, count)
