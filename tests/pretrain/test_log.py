"""Log of a run: rows of metrics.jsonl, which damage does not spoil, and TensorBoard's files."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain import trainer as trainer_module
from elmo_fast.pretrain.checkpoint import BestEvaluation
from elmo_fast.pretrain.log import RunLog, TrainingProgress
from elmo_fast.pretrain.metrics import read_metrics
from elmo_fast.pretrain.run import pretrain
from elmo_fast.pretrain.step import StepResult
from tests.pretrain.toy import quiet, same, toy_config


def position_of(step):
    """What a log knows of a checkpoint."""
    return SimpleNamespace(step=step, unreported=[], best=BestEvaluation(last=step))


def test_losses_that_are_tensors_are_reported_alike():
    """A GPU's losses stay tensors until a report, which then says what it says of numbers."""
    reports = []
    for kind in (float, torch.tensor):
        progress = TrainingProgress(10, None)
        for number in (1.5, 2.5):
            progress.add(StepResult(kind(number), kind(number + 2.0), kind(7.0), None), 4)
        row = progress.report()
        json.dumps(row)
        reports.append([row[name] for name in ("step", "loss", "loss_forward", "loss_backward", "gradient_norm")])
    assert reports[0] == reports[1] == [2, 3.0, 2.0, 4.0, 7.0]


def test_no_silence_is_long_and_lines_for_people_leave_the_rows(tmp_path, monkeypatch):
    """Lines come by time, at each step if that is so long; rows are of whole intervals."""
    monkeypatch.setattr(trainer_module, "LONGEST_SILENCE", -1.0)
    config = toy_config(tmp_path, max_steps=4, heldout_prefix=str(tmp_path / "train-1*"), heldout_interval=4)
    lines = []
    run = pretrain(config, report=lines.append)
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["1", "2", "3", "4"]
    assert [row["step"] for row in read_metrics(run.folder).steps] == [2, 4]
    assert any(line.startswith("eval   step 4 | ") and "of the held-out text are read" in line for line in lines)


def test_a_short_run_says_one_line_at_its_end(tmp_path):
    """Rows come every second step; what the last line shows are the newest averages, of a row or not."""
    lines = []
    run = pretrain(toy_config(tmp_path, max_steps=5), report=lines.append)
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["5"]
    assert [row["step"] for row in read_metrics(run.folder).steps] == [2, 4, 5]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.replace(b'"loss"', b'\n"loss"', 1),
        lambda content: content.replace(b"loss", b"l\xffss", 1),
        lambda content: b"[1, 2]\n" + content,
        lambda content: content.replace(b'"step": 2', b'"step": "two"', 1),
        lambda content: b"[" * 100_000 + b"\n" + content,
    ],
    ids=["a line cut", "not UTF-8", "another value", "another type", "deep"],
)
def test_damaged_metrics_are_set_aside_and_whole_rows_stay(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": 2, "words": 5, "loss": 1.0}, {"event": "checkpoint", "step": 2}, {"step": 4, "words": 9}]
    damaged = damage("".join(json.dumps(row) + "\n" for row in rows).encode())
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"set aside as .*metrics.damaged.jsonl; the whole rows stay"):
        RunLog(tmp_path, quiet, position_of(4)).__exit__()
    assert (tmp_path / "metrics.damaged.jsonl").read_bytes() == damaged
    *kept, last = [json.loads(line) for line in path.read_text().splitlines()]
    assert kept == [row for row in rows if json.dumps(row).encode() in damaged]
    path.write_bytes(path.read_bytes()[:-5])  # the last row was cut off: no damage
    RunLog(tmp_path, quiet, position_of(4)).__exit__()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [*kept, last]
    path.write_bytes(b"again\n" + path.read_bytes())
    with pytest.warns(UserWarning, match="set aside"):
        RunLog(tmp_path, quiet, position_of(4)).__exit__()
    assert (tmp_path / "metrics.damaged.jsonl").read_bytes().startswith(damaged + b"again\n")


def test_a_row_that_was_cut_off_does_not_spoil_the_next(tmp_path):
    """The disk takes half a row; the rows before and after it can be read."""

    class HalfFull:
        def __init__(self, file):
            self.file, self.name = file, file.name

        def write(self, line):
            return self.file.write(line[: len(line) // 2])

    with RunLog(tmp_path, quiet) as log:
        log.write(step=1, words=1, loss=1.0)
        whole = log._file
        log._file = HalfFull(whole)
        with pytest.warns(UserWarning, match="not written to metrics.jsonl: No space left .*; training continues"):
            log.write(step=2, words=2, loss=1.0)
        log._file = whole
        log.write(step=3, words=3, loss=1.0)
    with pytest.warns(UserWarning, match=r"metrics\.jsonl"):
        assert [row["step"] for row in read_metrics(tmp_path).steps] == [1, 3]


def test_metrics_go_to_a_callback_whose_error_ends_a_run_that_can_resume(tmp_path):
    """Each row and each evaluation, by step; the run that resumes ends with the weights of an undisturbed one."""
    settings = {"max_steps": 6, "heldout_prefix": str(tmp_path / "train-1*"), "heldout_interval": 3}
    settings |= {"n_epochs": 99, "checkpoint_interval": 3}
    taken, errors = [], [OSError("the tracker is away")]

    def take(step, figures):
        if step == 4 and errors:
            raise errors.pop()
        taken.append((step, figures))

    with pytest.raises(OSError, match="the tracker is away"):
        pretrain(toy_config(tmp_path, **settings), report=quiet, on_metrics=take)
    assert [(step, "heldout/perplexity" in figures) for step, figures in taken] == [(2, False), (3, True)]
    again = pretrain(toy_config(tmp_path, **settings), report=quiet, on_metrics=take)
    assert [step for step, _ in taken] == [2, 3, 4, 6, 6]
    row, figures = read_metrics(again.folder).steps[-1], taken[-2][1]
    assert figures.items() >= {f"train/{name}": row[name] for name in ("loss", "words", "learning_rate")}.items()
    whole = pretrain(toy_config(tmp_path, **settings | {"save_dir": str(tmp_path / "whole")}), report=quiet)
    assert same(again.model.checkpoint_state(), whole.model.checkpoint_state())


REPORT = {"seconds": 1.5, "words": 100, "loss": 4.0, "sampled_perplexity": 54.5}


def logged(folder, steps, resumed=None, loss=4.0):
    """Write reports on some steps, and one evaluation, as a run does."""
    with RunLog(folder, quiet, resumed and position_of(resumed), tensorboard=True) as log:
        for step in steps:
            log.write(**{"step": step, **REPORT, "loss": loss})
        log.write(event="checkpoint", step=steps[0], seconds=1.0, took=1.0)
        log.write(event="heldout", step=steps[0], words=100, perplexity=1.0, perplexity_forward=1.0)


def test_rows_become_scalars_and_a_resumed_run_removes_later_ones(tmp_path):
    """Steps up to the one resumed at stay; those after it are the new process's."""
    pytest.importorskip("tensorboard", reason="needs the extra tb")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged(tmp_path, (2, 4, 6))
    logged(tmp_path, (8,), resumed=4, loss=2.0)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    actual = {tag: {one.step: one.value for one in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    assert actual["train/loss"] == {2: 4.0, 4: 4.0, 8: 2.0}
    assert actual["heldout/perplexity"] == {2: 1.0, 8: 1.0}
    heldout = {f"heldout/{name}" for name in ("words", "perplexity", "perplexity_forward")}
    assert actual.keys() == {f"train/{name}" for name in REPORT} | heldout


def test_without_the_package_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ElmoFastError, match=r'^writing for TensorBoard needs .*: pip install "elmo-fast\[tb\]"$'):
        RunLog(tmp_path, quiet, tensorboard=True)
    assert list(tmp_path.iterdir()) == []
