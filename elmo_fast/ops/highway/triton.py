"""Triton: a layer's two products, gates and mix in one kernel; float32 where the gate carries, 16-bit operands."""

from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops.highway import host, host_backward
from elmo_fast.ops.highway.native import BACKWARD, result
from elmo_fast.ops.highway.op import HighwayArguments


def run(a: HighwayArguments) -> Tensor:
    return _forward_op(*a, a.needs_backward())[0]


_SAVED = "Tensor first, Tensor rest, Tensor pre"  # host.Saved
_triton.define(
    f"highway_backward(Tensor grad, Tensor x, {_SAVED}, Tensor[] weights, Tensor? projection_weight, Tensor? count, "
    "str precision, bool need_x, bool need_weights) -> (Tensor x, Tensor[] weights, Tensor[] biases, "
    "Tensor projection_weight, Tensor projection_bias)",
    host_backward.backward,
)
_forward_op = _triton.define(
    "highway(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? projection_weight, Tensor? projection_bias, "
    f"Tensor? count, str precision, bool save) -> (Tensor y, {_SAVED})",
    host.forward,
    lambda a: (result(a), *host.allocate(a)[0]),
    BACKWARD,
)
