"""Modules beside those of torch.nn that they replace: a training step (forward and backward) of each, one thread.

LSTM: two layers in both directions with a projection, and without one; the same parameters. Losses: over V words of 512
numbers, 640 positions; SampledSoftmaxLoss draws 8,192 words, AdaptiveLogSoftmaxWithLoss has torch's example of cutoffs.
"""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.op_calls import differentiated
from elmo_fast import LSTM, FullSoftmaxLoss, SampledSoftmaxLoss

SIZES = {"small": (64, 64, 256), "medium": (256, 256, 1024), "large": (512, 512, 2048)}  # I, D, H
B, T, V, D, N, S = 32, 20, 100_000, 512, 640, 8192


@functools.lru_cache(1)
def lstm_calls(size, projects, quick):
    torch.manual_seed(0)
    inputs, projection, cells = SIZES["small" if quick else size]
    theirs = nn.LSTM(inputs, cells if projects else projection, 2, bidirectional=True, batch_first=True,
                     proj_size=projection if projects else 0)  # fmt: skip
    x = torch.randn(B, T, inputs, requires_grad=True)
    sides = {"torch.nn.LSTM": theirs, "elmo_fast.LSTM": LSTM.from_torch(theirs)}
    return {
        side: (lambda m: differentiated(lambda: m(x)[0], [x, *m.parameters()], train=True))(module)
        for side, module in sides.items()
    }


@functools.lru_cache(1)
def loss_calls(quick):
    torch.manual_seed(0)
    words, rows, samples = (2000, 32, 100) if quick else (V, N, S)
    hidden = torch.randn(rows, D, requires_grad=True)
    targets = (torch.rand(rows) ** 4 * words).long()  # the most frequent words have the lowest numbers
    linear = nn.Linear(D, words)
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(D, words, [words // 50, words // 10, words // 2])
    sampled, full = SampledSoftmaxLoss(words, D, samples, sparse=True), FullSoftmaxLoss(words, D)
    return {
        "Linear and cross_entropy": (lambda: F.cross_entropy(linear(hidden), targets), linear, hidden),
        "AdaptiveLogSoftmaxWithLoss": (lambda: adaptive(hidden, targets).loss, adaptive, hidden),
        "elmo_fast.FullSoftmaxLoss": (lambda: full(hidden, targets), full, hidden),
        "elmo_fast.SampledSoftmaxLoss": (lambda: sampled(hidden, targets), sampled, hidden),
    }


@pytest.mark.turns(7)
@pytest.mark.parametrize("projects", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("side", ["torch.nn.LSTM", "elmo_fast.LSTM"])
def bench_lstm(timed, size, projects, side):
    _, projection, cells = SIZES[size]
    what = f"{cells} cells projected to {projection}" if projects else f"{projection} cells"
    timed(f"LSTM, {what}", lstm_calls(size, projects, timed.quick)[side], against="torch.nn.LSTM")
    timed.note("LSTM", f"two layers, both directions, {B} sequences of {T} steps, {', '.join(SIZES)}")


@pytest.mark.turns(5)
@pytest.mark.parametrize("side", ["Linear and cross_entropy", "AdaptiveLogSoftmaxWithLoss", "elmo_fast.FullSoftmaxLoss",
                                  "elmo_fast.SampledSoftmaxLoss"])  # fmt: skip
def bench_loss(timed, side):
    loss, module, hidden = loss_calls(timed.quick)[side]

    def step():
        module.zero_grad(set_to_none=True)
        hidden.grad = None
        loss().backward()

    timed("loss over 100,000 words", step, against="Linear and cross_entropy")
