"""Pretraining on several processes of this machine: the bytes that a step exchanges.

Bytes are counted on the loopback device; docs/scaling.md has the formula that they follow.
"""

import json
import pathlib
import subprocess
import sys
import time

import pytest
import torch

from benchmarks.machine import ROOT
from elmo_fast.corpus.streams import StreamBatch
from elmo_fast.pretrain.config import ModelConfig
from elmo_fast.pretrain.language_model import LanguageModel, options_of
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.processes import join_processes
from elmo_fast.pretrain.step import Step

ROWS, STEPS, WORDS, NEGATIVES = 64, 20, 20_000, 2048
MODEL = {"filters": [[1, 32], [2, 32], [3, 64]], "dim": 1024, "projection_dim": 128, "n_highway": 1}
TIMED, WARMUP = 12, 3  # steps


def random_words(first, count, seed):
    """Return rows [first, first + count) of a step: random words, as frequent as in running text."""
    uniform = torch.rand(2, ROWS, STEPS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    types = ((WORDS + 1.0) ** uniform - 1).long().clamp_(max=WORDS - 1)[:, first : first + count].contiguous()
    return StreamBatch(types, types, torch.full((count,), STEPS).numpy(), ROWS * STEPS, [])


def sent_bytes():
    """Return what the loopback device has carried since the machine started."""
    line = next(line for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if "lo:" in line)
    return int(line.split(":")[1].split()[8])


def work(model, steps):
    """Take steps in one of several processes; the leader prints the milliseconds and bytes of each."""
    torch.set_num_threads(1)
    with join_processes(torch.device("cpu")) as processes:
        torch.manual_seed(0)
        network = LanguageModel(options_of(ModelConfig(**model), WORDS, n_negative_samples_batch=NEGATIVES))
        spelled, (first, count) = torch.arange(1, 51).expand(WORDS, 50) % 200 + 1, processes.assign_rows(ROWS)
        step = Step(
            network, AdaGrad(network.parameters()), lambda some: spelled[some], rows=ROWS, first_row=first,
            clip_norm=10.0, processes=processes,
        )  # fmt: skip
        measured = []
        for number in range(WARMUP + steps):
            processes.max_(0)
            before, begin = sent_bytes(), time.perf_counter()
            step(random_words(first, count, number), None, number)
            processes.max_(0)
            measured.append((1000 * (time.perf_counter() - begin), (sent_bytes() - before) / processes.size))
        if processes.leads:
            print(json.dumps(measured[WARMUP:]))


@pytest.mark.turns(2)
@pytest.mark.parametrize("side", ["1 process", "2 processes"])
def bench_step(timed, side):
    model = MODEL | ({"dim": 64, "projection_dim": 16} if timed.quick else {})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={side[0]}"]
    command += ["-m", "benchmarks.bench_scaling", json.dumps([model, 2 if timed.quick else TIMED])]
    run = lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True)  # noqa: E731
    ended = timed("all steps, start included", run, amount=1, unit="s", warmup=0)
    assert not ended.returncode, ended.stderr
    for milliseconds, size in json.loads(ended.stdout.splitlines()[-1]):
        timed.figure("one step", side, milliseconds, "ms", against="1 process")
        if side != "1 process":
            timed.figure(f"sent by one of {side} in a step", "measured", size / 1e6, "MB")


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
