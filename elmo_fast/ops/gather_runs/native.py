"""gather_runs in C++: run by run, prefetching the memory of later runs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops._native import describe


def run(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int, out: Tensor) -> None:
    torch.ops.elmo_fast.gather_runs([part.contiguous() for part in values], first, lengths, upward, out)


describe("gather_runs", lambda a: None)
