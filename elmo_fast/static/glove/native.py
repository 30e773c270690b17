"""C++ on the CPU: AVX-512 or AVX2, entries divided among torch's threads, which change the tables without locks."""

import torch
from torch import Tensor

from elmo_fast.ops._native import describe
from elmo_fast.static.glove.op import GloveArguments


def run(a: GloveArguments) -> Tensor:
    tables = list(a.weights), list(a.squares)
    loss: Tensor = torch.ops.elmo_fast.glove(a.rows, a.columns, a.values, *tables, a.learning_rate, a.x_max, a.alpha)
    return loss


describe("glove", lambda a: a.values.new_empty((), dtype=torch.float64))
