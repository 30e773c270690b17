"""negative_sampling in Triton: scores that exist in registers only, their gradient in chunks in L2, no host sync."""

import math
from typing import Any

from torch import Tensor

from elmo_fast.ops._softmax_triton import OF_ROWS, fake, gradients, losses
from elmo_fast.ops._triton import define
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


def run(a: NegativeSamplingArguments) -> Tensor:
    log_noise = None if a.log_noise is None else a.log_noise.detach()
    options = a.negatives, a.log_noise is not None, a.sparse, a.chunk_bytes, a.precision
    return _op(a.hidden, a.targets, a.weight, a.bias, a.samples, log_noise, *options)[0]


def _forward(a: Any) -> tuple[Tensor, ...]:
    law, correction, term = None, "none", 0.0
    if a.log_noise is not None:
        law, correction, term = a.log_noise.contiguous(), "noise", math.log(a.negatives)
    share = a.negatives / len(a.samples)
    return losses("negative_sampling", a, a.samples, law, correction, term, share=share, count_hits=a.count_hits)


define(
    "negative_sampling_backward(Tensor grad, Tensor kept, Tensor operands, Tensor ids, Tensor rows, Tensor offsets, "
    "Tensor weight, float negatives, bool count_hits, bool sparse, int chunk_bytes) "
    "-> (Tensor hidden, Tensor weight, Tensor bias)",
    lambda a: gradients("negative_sampling", a, share=a.negatives / len(a.rows), count_hits=a.count_hits),
)
_op = define(
    "negative_sampling(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor? log_noise, "
    "float negatives, bool count_hits, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor kept, Tensor operands, Tensor ids, Tensor rows, Tensor offsets)",
    _forward,
    lambda a: fake(a, a.samples, 1),
    OF_ROWS,
)
