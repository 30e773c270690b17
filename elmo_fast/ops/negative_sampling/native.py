"""negative_sampling in C++: a sum of logarithms as the logarithm of a product, its slopes from the same exponential."""

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward, requires_grad
from elmo_fast.ops._native import describe
from elmo_fast.ops._table_rows import fake_of_samples
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


def run(a: NegativeSamplingArguments) -> Tensor:
    rows, offsets, ids = a.gathered()
    options = a.share, a.log_noise is not None, a.precision, a.chunk_bytes, requires_grad(a.hidden, rows, offsets)
    return torch.ops.elmo_fast.negative_sampling(a.hidden, rows, offsets, ids, *options)[0]


describe("negative_sampling", fake_of_samples, Backward())
