"""A replayed training step with launches that cost nothing, for the time that its host takes.

A model with as many weights as the original one, each of a few numbers, on the CPU; 128 rows of 20 steps. What is
replayed does nothing; copies are those of the CPU.
"""

import sys
from typing import Any

import numpy as np
import torch

from elmo_fast import ops
from elmo_fast.corpus import streams
from elmo_fast.corpus.streams import DistinctWords, StreamBatch
from elmo_fast.ops import _graphs, _sampling, _table_rows
from elmo_fast.ops._checks import check_values
from elmo_fast.pretrain import step as step_module
from elmo_fast.pretrain.language_model import make_language_model
from elmo_fast.pretrain.optimizer import AdaGrad
from tests.pretrain.toy import toy_config, toy_corpus, toy_step

BATCH, STEPS, WORDS = 128, 20, 500
SMALL: dict[str, Any] = {
    "filters": [[width, 2] for width in range(1, 8)], "n_highway": 2, "n_layers": 2, "dim": 4, "projection_dim": 4,
    "batch_size": BATCH, "unroll_steps": STEPS, "dropout": 0.1, "backend": "reference", "state_reset": 0.01,
}  # fmt: skip


def pretend(monkeypatch):
    """Steps of the CPU may be captured, which reads no value as a GPU reads none; no test finds another's graphs."""
    monkeypatch.setattr(_graphs, "enabled", lambda device: True)
    monkeypatch.setattr(streams, "PADDED_TO", 16)
    for module in (_table_rows, step_module):
        monkeypatch.setattr(module, "coalesced_at_once", lambda device: False)
    monkeypatch.setattr(step_module, "cpu_dropout_factors", _sampling.dropout_factors)
    monkeypatch.setattr(_sampling, "has_kernel", lambda device: False)  # slow to interpret
    actual = [module for name, module in sys.modules.items() if name.startswith("elmo_fast.")]
    for module in actual:
        if getattr(module, "check_values", None) is check_values:
            monkeypatch.setattr(module, "check_values", lambda *values: None)
    # Those of plain torch look at how many distinct rows there are.
    monkeypatch.setattr(ops, "ordered_unique_rows", each_its_own)
    monkeypatch.setattr(ops, "gather_rows", lambda rows, inverse, order, backend: rows.index_select(0, inverse))
    _graphs.release(torch.device("cpu"))


def each_its_own(rows, backend):
    """Rows as if all of them were distinct."""
    return rows, torch.arange(len(rows)), torch.full((), len(rows)), None


def nothing_replayed(function, inputs, pool, run_before):
    """A graph that has been captured, and does nothing when it is replayed."""
    return _graphs.Entry(inputs, _graphs.run_pieces(function, *inputs), lambda: None, function)


def replayed_step(monkeypatch):
    """A function that takes the next step; all from the third on are replayed."""
    pretend(monkeypatch)
    torch.manual_seed(0)
    model = make_language_model(toy_config(**SMALL), WORDS)
    model.bilm.encoder._waits_for_nothing = True
    optimizer = AdaGrad(model.parameters(), 0.2, backend="reference")
    step, generator = toy_step(model, optimizer, rows=BATCH, state_reset=0.01), np.random.default_rng(0)
    step.draws_on_device = True
    monkeypatch.setattr(_graphs, "capture", nothing_replayed)
    known = len(toy_corpus().types.words())
    types = generator.integers(0, known, (2, BATCH, STEPS))
    distinct = DistinctWords.of(types, np.ones(known, np.int64))
    targets = torch.from_numpy(generator.integers(0, WORDS, types.shape))
    batch = StreamBatch(torch.from_numpy(types), targets, np.full(BATCH, STEPS), BATCH * STEPS, [distinct])
    samples = torch.arange(6), torch.tensor(6)
    monkeypatch.setattr(model.loss, "draw", lambda seed, offset, device: samples)
    state, number = None, 0

    def once():
        nonlocal state, number
        state, number = step(batch, state, number).state, number + 1

    for _ in range(3):
        once()
    assert step.captured is not None
    assert len(step.captured.graphs) == 1
    return once


def calls_of(once):
    """Return the number of functions that the host calls in a step, Python's and torch's."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        once()
    finally:
        sys.setprofile(None)
    return count
