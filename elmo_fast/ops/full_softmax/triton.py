"""full_softmax in Triton: log-sum-exps over tiles of words, merged in order; the forward pass writes no logits.

The table is 1.6 GB of float32 for 793,471 words. Rounding it inside the tiles would read 4 bytes per element for every
tile of rows, 32 GB of L2 for 2560 rows; a chunk rounded first is read from memory once, whatever the number of rows
(0.4 ms at 4.3 TB/s, the floor for few rows; for many rows the floor is 2 N V D operations, 2.6 ms for 2560). No copy of
the table is cached.
"""

from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._softmax_triton import fake, gradients, losses
from elmo_fast.ops._triton import define
from elmo_fast.ops.full_softmax.op import FullSoftmaxArguments


def run(a: FullSoftmaxArguments) -> Tensor:
    return _op(*a)[0]


define(
    "full_softmax_backward(Tensor grad, Tensor kept, Tensor operands, Tensor ids, Tensor weight, Tensor bias, "
    "int chunk_bytes) -> (Tensor hidden, Tensor weight, Tensor bias)",
    lambda a: gradients("full_softmax", a, whole=True),
)
_op = define(
    "full_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, str precision, int chunk_bytes) "
    "-> (Tensor losses, Tensor kept, Tensor operands, Tensor ids)",
    lambda a: losses("full_softmax", a, None),
    lambda a: fake(a, None),
    Backward(shapes=lambda a: {"hidden": a.operands.shape}),
)
