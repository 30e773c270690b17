"""full_softmax in Triton: log-sum-exps over tiles of words, merged in order; no logit is written on the way forward."""

from typing import Any

from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._triton import define, operand_dtype
from elmo_fast.ops.full_softmax import host
from elmo_fast.ops.full_softmax.op import FullSoftmaxArguments


def run(a: FullSoftmaxArguments) -> Tensor:
    return _forward(*a)[0]


def _fake(a: Any) -> tuple[Tensor, ...]:
    losses = a.hidden.new_empty(a.hidden.shape[0])
    operands = a.hidden.new_empty(a.hidden.shape, dtype=operand_dtype(a.precision))
    return losses, losses.new_empty(losses.shape), operands, a.targets.new_empty(losses.shape)


define(
    "full_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor ids, Tensor weight, "
    "Tensor bias, int chunk_bytes) -> (Tensor hidden, Tensor weight, Tensor bias)",
    host.backward,
)
_forward = define(
    "full_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, str precision, int chunk_bytes) "
    "-> (Tensor losses, Tensor totals, Tensor operands, Tensor ids)",
    host.forward,
    _fake,
    Backward(shapes=lambda a: {"hidden": a.operands.shape}),
)
