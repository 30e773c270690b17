"""Failures during a long run: nothing that was saved is lost, and a sentence says what happened."""

import contextlib
import itertools
import os
import resource
import signal

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from elmo_fast.checkpoints import saved_steps
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.checkpoint import read_training_state
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import quiet, toy_config


def long_run(tmp_path, **changes):
    settings = {"max_steps": 40, "n_epochs": 1000, "checkpoint_interval": 4, "log_interval": 10}
    return toy_config(tmp_path, **settings | changes)


@contextlib.contextmanager
def at_steps(actions):
    """While open, do something in the middle of a run: {step: what is called with the model, as the step reads it}."""
    steps = itertools.count(1)

    def before(module, inputs):
        if isinstance(module, LanguageModel):
            actions.get(next(steps), lambda model: None)(module)

    handle = register_module_forward_pre_hook(before)
    yield
    handle.remove()


def test_a_full_disk_during_a_save_stops_nothing_and_spoils_nothing(tmp_path):
    """The system's own limit on a file's size stands for the full disk; it is lifted later, and saving goes on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(model):
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, before[1]))

    def room(model):
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        kept = saved_steps(tmp_path / "out")
        assert [step for step, _ in kept] == [4, 8]
        assert [read_training_state(path).position.step for _, path in kept] == [4, 8]
        assert sorted(p.name for p in (tmp_path / "out" / "checkpoints").iterdir()) == [p.name for _, p in kept]

    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.warns(UserWarning, match="^not (saved|written)") as caught, at_steps({11: full, 22: room}):
            run = pretrain(long_run(tmp_path), report=quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    lines = [str(each.message) for each in caught]
    failed = [line for line in lines if line.startswith("not saved")]
    assert len(failed) == 3, lines
    assert "after step 12" in failed[0]
    assert "File too large" in failed[0]
    assert any(line.startswith("not written to metrics.jsonl: File too large") for line in lines)
    assert run.steps == 40
    assert [row["step"] for row in read_metrics(run.folder).steps] == [10, 30, 40]
    expected = pretrain(long_run(tmp_path, save_dir=str(tmp_path / "calm")), report=quiet).model.checkpoint_state()
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in LanguageModel.from_pretrained(run.folder).checkpoint_state().items()
    )


def test_a_full_disk_at_the_end_is_an_error_and_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    def refuse(handle):
        raise OSError(28, "No space left on device")

    full = {40: lambda model: monkeypatch.setattr(os, "fsync", refuse)}
    with at_steps(full), pytest.raises(OSError, match="No space left on device"):
        pretrain(long_run(tmp_path), report=quiet)
    kept = saved_steps(tmp_path / "out")
    assert [read_training_state(path).position.step for _, path in kept] == [32, 36]


def test_a_loss_that_is_no_number_stops_the_run_at_a_named_step_and_batch(tmp_path):
    spoilt = {11: lambda model: model.softmax_bias.data.fill_(float("inf"))}
    with (
        at_steps(spoilt),
        pytest.raises(ElmoFastError, match=r"step 11 \(batch 2 of epoch 4\): the loss \((nan|inf).*no longer finite"),
    ):
        pretrain(long_run(tmp_path), report=quiet)
    newest = saved_steps(tmp_path / "out")[-1][1]
    assert newest.name == "step-0000008"
    assert all(tensor.isfinite().all() for tensor in read_training_state(newest).weights.values())
