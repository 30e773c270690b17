"""Both layers of the biLM, original size, on one thread and on two in turn: alone, and beside two busy processes.

The goals are 1.9 times one thread alone (batch 32) and 0.9 beside others. A batch of 1 reads all weights for every
token, so two threads are no faster there than the memory that they share.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import torch

from benchmarks.cases import Settings
from benchmarks.results import Report, faster, measure
from benchmarks.timing import milliseconds
from elmo_fast.ops import LSTMWeights, projected_lstm
from elmo_fast.threads import busy_processors, torch_threads, usage

BUSY = 2  # processes
GOALS = {0: 1.9, BUSY: 0.9}


def run(settings: Settings) -> Report:
    """Rows "ms" for each batch, precision and number of busy processes; who else used the processors is a note."""
    torch.manual_seed(0)
    cells, size = (64, 32) if settings.quick else (4096, 512)
    report = Report(notes={"shape": {"steps": 20, "layers": 2, "inputs": size, "projection": size, "cells": cells}})
    layers = [[weights(cells, size) for _ in range(2)] for _ in range(2)]
    others = {}
    for batch in (32, 1):
        for precision in ("float32", "bfloat16", "int8"):
            for busy in (0, BUSY):
                variant = f"batch of {batch}, {precision}{f', beside {busy} busy processes' if busy else ''}"
                call = forward(torch.randn(batch, 20, size), layers, precision)
                with busy_processes(busy):
                    since = usage()
                    sides = {"1 thread": on(1, call), "2 threads": on(2, call)}
                    one, two = measure(variant, sides, 3 if settings.quick else 9, unit="ms")
                    others[variant] = round(busy_processors(since) or 0.0, 2)
                two.threads = 2
                faster(two, one, GOALS[busy] if busy or batch > 1 else None)
                report.rows += [one, two]
    report.notes["processors that other processes kept busy"] = others
    return report


def weights(cells: int, size: int) -> LSTMWeights:
    """Random weights of one direction."""
    shapes = (4 * cells, size), (4 * cells, size), (4 * cells,), (size, cells)
    return LSTMWeights(*(torch.randn(shape) * 0.02 for shape in shapes))


def forward(x: torch.Tensor, layers: list[list[LSTMWeights]], precision: str) -> Callable[[], None]:
    """Both layers with clips, as ELMo runs them."""

    def call() -> None:
        inputs = [x, x]
        with torch.inference_mode():
            for number, each in enumerate(layers):
                out, _ = projected_lstm(
                    inputs,
                    each,
                    reverse=(False, True),
                    cell_clip=3.0,
                    projection_clip=3.0,
                    residual=number > 0,
                    precision=precision,
                )
                inputs = [out[0], out[1]]

    return call


def on(threads: int, call: Callable[[], None]) -> Callable[[], float]:
    """A measurement of `call` on so many threads."""
    timed = milliseconds(call)

    def measured() -> float:
        with torch_threads(threads):
            return timed()

    return measured


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that compute while this is open."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
