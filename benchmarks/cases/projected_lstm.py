"""One layer of the original size, both directions, 32 rows of 20 steps: ours and torch.nn.LSTM(proj_size=512) in turn.

torch's side is the faster of one bidirectional nn.LSTM and two of one direction each, in the same dtype. Ours runs with
both clips, which torch's cannot. In bfloat16, ours rounds the operands and keeps cell state and sums in float32, while
torch's computes all of it in bfloat16.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.cases import Settings
from benchmarks.gradients import differentiated
from benchmarks.results import Report, faster, measure
from benchmarks.timing import milliseconds
from elmo_fast.ops import LSTMWeights, projected_lstm

GOALS = {("float32", False): 1.6, ("bfloat16", False): 2.5, ("float32", True): 1.5, ("bfloat16", True): 2.0}


def run(settings: Settings) -> Report:
    """Rows "ms" for each precision, forward alone (no autograd) and forward + backward (input and weights)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")  # torch's, of its own path
    inputs, hidden, cells = (64, 64, 256) if settings.quick else (512, 512, 4096)
    shape = {"rows": 32, "steps": 20, "inputs": inputs, "projection": hidden, "cells": cells}
    report = Report(notes={"shape": shape, "clips": "3 and 3 in ours, none in torch.nn.LSTM"})
    rounds = 3 if settings.quick else 11
    for precision in ("float32", "bfloat16"):
        for train in (False, True):
            sides = {"elmo_fast": ours(inputs, hidden, cells, precision, train)}
            for name, directions in (("nn.LSTM, bidirectional", 2), ("two nn.LSTM", 1)):
                sides[name] = torchs(inputs, hidden, cells, precision, train, directions)
            variant = f"{precision}, {'forward + backward' if train else 'forward'}"
            rows = measure(variant, sides, rounds, unit="ms")
            faster(rows[0], min(rows[1:], key=lambda each: each.median), GOALS[precision, train])
            report.rows += rows
    return report


def ours(inputs: int, hidden: int, cells: int, precision: str, train: bool) -> Callable[[], float]:
    """The op with its own tensors."""
    bound = cells**-0.5
    weights = [
        LSTMWeights(*(torch.empty(size).uniform_(-bound, bound).requires_grad_(train) for size in sizes))
        for sizes in 2 * [((4 * cells, inputs), (4 * cells, hidden), (4 * cells,), (hidden, cells))]
    ]
    x = torch.randn(32, 20, inputs, requires_grad=train)
    parameters = [x, *(tensor for run in weights for tensor in run if tensor is not None)]
    forward = lambda: projected_lstm([x, x], weights, precision=precision)[0]  # noqa: E731
    return milliseconds(differentiated(forward, parameters, train=train))


def torchs(inputs: int, hidden: int, cells: int, precision: str, train: bool, directions: int) -> Callable[[], float]:
    """One bidirectional nn.LSTM (directions=2), or two of one direction, the second fed in reverse."""
    dtype = getattr(torch, precision)
    lstms = [
        nn.LSTM(inputs, cells, batch_first=True, bidirectional=directions == 2, proj_size=hidden).to(dtype)
        for _ in range(3 - directions)
    ]
    x = torch.randn(32, 20, inputs, dtype=dtype, requires_grad=train)
    parameters: list[Tensor] = [x, *(parameter for lstm in lstms for parameter in lstm.parameters())]
    forward = lambda: tuple(lstm(x.flip(1) if i else x)[0] for i, lstm in enumerate(lstms))  # noqa: E731
    return milliseconds(differentiated(forward, parameters, train=train))
