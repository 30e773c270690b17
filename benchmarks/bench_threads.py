"""Both layers of the biLM, original size, on one thread and on two: alone, and next to two busy processes.

Then a whole pretraining command, alone and beside another process that does the same.

A batch of 1 reads all weights for every token, so two threads are no faster there than the memory that they share. With
ELMO_FAST_ISA set it shows which precisions are `slower` in elmo_fast/ops/_native.py.
"""

import contextlib
import functools
import json
import os
import random
import subprocess
import sys
import time
import warnings

import pytest
import torch

from benchmarks.op_calls import TOY, OpCalls
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.errors import PerformanceWarning
from elmo_fast.op_choices import INFERENCE_PRECISIONS
from elmo_fast.ops import PackedWeights, projected_lstm

BUSY = 2  # processes


@functools.lru_cache(1)
def layers(quick):
    """Random weights of two layers, two directions each."""
    calls = TOY if quick else OpCalls()
    return [([calls.lstm_weights() for _ in range(2)], PackedWeights()) for _ in range(2)]


def run_layers(x, weights, precision, threads):
    inputs = [x, x]
    how = {"reverse": (False, True), "cell_clip": 3.0, "projection_clip": 3.0, "precision": precision}
    with torch.inference_mode(), torch_threads(threads):
        for number, (layer, packed) in enumerate(weights):
            inputs = [*projected_lstm(inputs, layer, residual=number > 0, packed=packed, **how)[0]]


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
    x = torch.randn(batch, 20, weights[0][0][0].weight_ih.shape[1])
    variant = f"batch of {batch}, {precision}{f', beside {busy} busy processes' if busy else ''}"
    call = functools.partial(run_layers, x, weights, precision, threads)
    timed(variant, call, threads=threads, against="1 thread")


@contextlib.contextmanager
def pretraining(folder, name, steps, policy):
    """Start `elmo-fast pretrain --config tiny` on a text of 500 words; end it with the block."""
    text = folder / "text.txt"
    if not text.exists():
        draw = random.Random(0)
        words = [f"word{int(500 ** draw.random())}" for _ in range(40_000)]
        text.write_text("\n".join(" ".join(words[i : i + 20]) for i in range(0, len(words), 20)), encoding="utf-8")
    options = {
        "train_prefix": text,
        "save_dir": folder / name,
        "max_steps": steps,
        "n_epochs": 10**6,
        "log_interval": 1,
    }
    command = [sys.executable, "-m", "elmo_fast", "pretrain", "--config", "tiny", "-q"]
    command += [f"--{key}={value}" for key, value in options.items()]
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": "ACTIVE"} if policy == ACTIVE else {}
    child = subprocess.Popen(command, env=environment)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def reports(folder, name):
    """Return the rows of a run's metrics.jsonl with a loss."""
    path = folder / name / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [row for row in map(json.loads, lines) if "loss" in row]


DEFAULT, ACTIVE = POLICIES = "elmo_fast", "elmo_fast, OMP_WAIT_POLICY=ACTIVE"


@pytest.mark.turns(3)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("side", POLICIES)
def bench_pretrain_beside(timed, beside, side, tmp_path):
    """A whole command; its speed is that of the steps after the first."""
    steps = 3 if timed.quick else 60

    def run():
        with pretraining(tmp_path, "run", steps, side) as child:
            assert child.wait() == 0

    with pretraining(tmp_path, "other", 10**6, side) if beside else contextlib.nullcontext() as other:
        while beside and not reports(tmp_path, "other"):
            assert other is not None
            assert other.poll() is None, "the other process has ended"
            time.sleep(0.1)
        variant = f"pretrain --config tiny{', beside another process' if beside else ''}"
        timed(f"{variant}, whole command", run, warmup=0, amount=1, unit="s", threads=2, against=ACTIVE)
    speeds = sorted(row["words_per_second"] for row in reports(tmp_path, "run")[1:])
    timed.figure(variant, side, speeds[len(speeds) // 2], "tokens/s", against=ACTIVE)
