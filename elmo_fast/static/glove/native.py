"""C++ on the CPU: AVX-512 or AVX2, entries shared out among torch's threads, which change the tables without locks."""

import torch
from torch import Tensor

from elmo_fast.ops._native import describe


def run(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    weights: tuple[Tensor, ...],
    squares: tuple[Tensor, ...],
    learning_rate: float,
    x_max: float,
    alpha: float,
) -> Tensor:
    loss: Tensor = torch.ops.elmo_fast.glove(
        rows, columns, values, list(weights), list(squares), learning_rate, x_max, alpha
    )
    return loss


describe("glove", lambda a: a.values.new_empty((), dtype=torch.float64))
