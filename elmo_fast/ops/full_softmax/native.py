"""full_softmax in C++: products block by block, each into the gradients' own memory, one pass over each row."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._native import describe
from elmo_fast.ops.full_softmax.op import FullSoftmaxArguments


def run(a: FullSoftmaxArguments) -> Tensor:
    return torch.ops.elmo_fast.full_softmax(*a)[0]


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    return a.hidden.new_empty(a.hidden.shape[0]), a.hidden.new_empty(a.hidden.shape[0], 2)


describe("full_softmax", _fake, Backward())
