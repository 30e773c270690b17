"""What the host does besides kernels: in a training step whose CUDA graph is replayed, and in a short sentence's call.

The step is that of replayed_step.py: as many weights as the original model has, each of a few numbers, on the
CPU, where what is replayed does nothing. Calls are those of Python's and torch's functions (step), and of Python
functions of elmo_fast (sentence); their numbers do not depend on the machine.
"""

import pathlib
import sys

import pytest
import torch

import elmo_fast
from benchmarks import replayed_step
from elmo_fast import Elmo, batch_to_ids


@pytest.mark.turns(5)
@pytest.mark.parametrize("side", ["elmo_fast"])
def bench_replayed_step(timed, side, monkeypatch):
    once = replayed_step.replayed_step(monkeypatch)
    timed.figure("replayed training step, 128 x 20: calls", side, replayed_step.calls_of(once), "calls")
    timed("replayed training step, 128 x 20: host", once, amount=1e3, unit="ms", rounds=100)


@pytest.mark.turns(5)
@pytest.mark.parametrize("side", ["elmo_fast"])
def bench_short_sentence(timed, side):
    elmo, ids = Elmo.from_pretrained("mini", 1, dropout=0.0).eval(), batch_to_ids([["the", "cat", "sat", "down"]])
    own, count = str(pathlib.Path(elmo_fast.__file__).parent), 0

    def seen(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(own)

    with torch.no_grad():
        for _ in range(5):
            elmo(ids)
        sys.setprofile(seen)
        try:
            elmo(ids)
        finally:
            sys.setprofile(None)
        timed.figure("four words with mini, warm: Python calls", side, count, "calls")
        timed("four words with mini, warm", lambda: elmo(ids), amount=1e3, unit="ms", rounds=100)
