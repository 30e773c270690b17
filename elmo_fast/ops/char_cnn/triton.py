"""Triton: one kernel for all widths forwards, which keeps the largest window and never stores the others."""

from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import requires_grad
from elmo_fast.ops.char_cnn import host
from elmo_fast.ops.char_cnn.native import BACKWARD, fake
from elmo_fast.ops.char_cnn.op import CharCNNArguments


def run(a: CharCNNArguments) -> Tensor:
    return _forward_op(*a, requires_grad(a.embedding, *a.weights, *a.biases))[0]


_triton.define(
    "char_cnn_backward(Tensor grad, Tensor features, Tensor winners, Tensor ids, Tensor embedding, "
    "Tensor[] weights, Tensor[] biases, Tensor? count, bool tanh, str precision, bool need_embedding, "
    "bool need_weights) -> (Tensor embedding, Tensor[] weights, Tensor[] biases)",
    host.backward,
)
SCHEMA = (
    "(Tensor ids, Tensor embedding, Tensor[] weights, Tensor[] biases, Tensor? count, bool tanh, "
    "str precision, bool save) -> (Tensor features, Tensor winners)"
)
_forward_op = _triton.define(f"char_cnn{SCHEMA}", host.forward, fake, BACKWARD)
