"""highway in C++: the product, both gates and the mix of each layer in one pass over tiles."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._native import describe
from elmo_fast.ops._table_rows import first_rows
from elmo_fast.ops._weights import run_stamped
from elmo_fast.ops.highway.op import HighwayArguments


def run(a: HighwayArguments) -> Tensor:
    x, projection = first_rows(a.x, a.rows), (a.projection_weight, a.projection_bias)
    packed, op = (*a.weights, a.projection_weight), torch.ops.elmo_fast.highway
    y = run_stamped(op, packed, x, a.weights, a.biases, *projection, a.precision, a.needs_backward())[0]
    return first_rows(y, a.rows)


def result(a: Any) -> Tensor:
    """Allocate a tensor like y, for this backend and the GPU's."""
    return a.x.new_empty(a.x.shape[0], a.x.shape[1] if a.projection_weight is None else a.projection_weight.shape[0])


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    return result(a), a.x.new_empty((len(a.weights), 3, *a.x.shape) if a.save else (0,))


def _shapes(a: Any) -> dict[str, Any]:
    projection_bias = None if a.projection_weight is None else a.projection_weight.shape[:1]
    return {"biases": [weight.shape[:1] for weight in a.weights], "projection_bias": projection_bias}


BACKWARD = Backward(
    covers={"need_weights": ["weights", "biases", "projection_weight", "projection_bias"]}, shapes=_shapes
)
describe("highway", _fake, BACKWARD)
