"""Both layers of the biLM, original size, on one thread and on two: alone, and next to two busy processes.

A batch of 1 reads all weights for every token, so two threads are no faster there than the memory that they share. With
ELMO_FAST_ISA set it shows which precisions are `slower` in elmo_fast/ops/_cpu_products.py.
"""

import functools
import subprocess
import sys
import warnings

import pytest
import torch

from benchmarks.op_calls import TOY, OpCalls
from elmo_fast.errors import PerformanceWarning
from elmo_fast.op_choices import INFERENCE_PRECISIONS
from elmo_fast.ops import projected_lstm
from elmo_fast.threads import torch_threads

BUSY = 2  # processes


@functools.lru_cache(1)
def layers(quick):
    """Random weights of two layers, two directions each."""
    calls = TOY if quick else OpCalls()
    return [[calls.lstm_weights() for _ in range(2)] for _ in range(2)]


def run_layers(x, weights, precision, threads):
    inputs = [x, x]
    how = {"reverse": (False, True), "cell_clip": 3.0, "projection_clip": 3.0, "precision": precision}
    with torch.inference_mode(), torch_threads(threads):
        for number, layer in enumerate(weights):
            inputs = [*projected_lstm(inputs, layer, residual=number > 0, **how)[0]]


@pytest.fixture
def busy_processes(busy):
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    yield
    for child in children:
        child.kill()
        child.wait()


@pytest.mark.turns(9)
@pytest.mark.parametrize("batch", [32, 1])
@pytest.mark.parametrize("precision", INFERENCE_PRECISIONS)
@pytest.mark.parametrize("busy", [0, BUSY])
@pytest.mark.parametrize("side", ["1 thread", "2 threads"])
def bench_layers(timed, batch, precision, busy, side, busy_processes):
    warnings.simplefilter("ignore", PerformanceWarning)  # slower than float32 is a result here
    weights, threads = layers(timed.quick), int(side[0])
    x = torch.randn(batch, 20, weights[0][0].weight_ih.shape[1])
    variant = f"batch of {batch}, {precision}{f', beside {busy} busy processes' if busy else ''}"
    call = functools.partial(run_layers, x, weights, precision, threads)
    timed(variant, call, threads=threads, against="1 thread")
