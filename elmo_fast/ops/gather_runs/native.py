"""C++ on the CPU: run by run, the memory of runs to come asked for ahead."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops import _native
from elmo_fast.ops._native import unsupported as unsupported


def run(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int, out: Tensor) -> None:
    torch.ops.elmo_fast.gather_runs([part.contiguous() for part in values], first, lengths, upward, out)


if _native.C is not None:

    @torch.library.register_fake("elmo_fast::gather_runs")
    def _fake(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int, out: Tensor) -> None:
        return None
