"""sampled_softmax in C++: 16-bit products on packed rows, losses and probabilities in one pass over a row of logits."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward, requires_grad
from elmo_fast.ops._native import describe
from elmo_fast.ops._table_rows import fake_of_samples
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def run(a: SampledSoftmaxArguments) -> Tensor:
    rows, offsets, ids = a.gathered()
    keep = requires_grad(a.hidden, rows, offsets)
    return torch.ops.elmo_fast.sampled_softmax(a.hidden, rows, offsets, ids, a.precision, a.chunk_bytes, keep)[0]


def _fake(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    losses, _, probabilities = fake_of_samples(a)
    return losses, losses.new_empty(len(losses), 2), probabilities


describe("sampled_softmax", _fake, Backward())
