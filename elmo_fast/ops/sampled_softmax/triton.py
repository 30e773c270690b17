"""sampled_softmax in Triton: logits that are never written, their gradient in chunks that stay in L2, no host sync."""

import torch
from torch import Tensor

from elmo_fast.ops._softmax_triton import OF_ROWS, fake, gradients, losses
from elmo_fast.ops._triton import define
from elmo_fast.ops.log_uniform_sample.op import CORRECTIONS
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def run(a: SampledSoftmaxArguments) -> Tensor:
    tries, device = a.tries, a.hidden.device
    if isinstance(tries, Tensor):
        tries = tries.to(device, torch.int64, non_blocking=True)
    else:
        tries = torch.full((), tries, dtype=torch.int64, device=device)
    return _op(*a._replace(tries=tries))[0]


define(
    "sampled_softmax_backward(Tensor grad, Tensor kept, Tensor operands, Tensor ids, Tensor rows, Tensor offsets, "
    "Tensor weight, bool sparse, int chunk_bytes) -> (Tensor hidden, Tensor weight, Tensor bias)",
    lambda a: gradients("sampled_softmax", a),
)
_op = define(
    "sampled_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor tries, "
    "str correction, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor kept, Tensor operands, Tensor ids, Tensor rows, Tensor offsets)",
    lambda a: losses("sampled_softmax", a, a.samples, a.tries, a.correction, CORRECTIONS[a.correction]),
    lambda a: fake(a, a.samples),
    OF_ROWS,
)
