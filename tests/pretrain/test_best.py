"""Held-out perplexity decides: the best checkpoint stays, patience ends a run, and a dry run says what it takes."""

import os
import shutil
import warnings
from types import SimpleNamespace

import pytest
import torch

from elmo_fast.checkpoints import saved_steps
from elmo_fast.pretrain import log as log_module
from elmo_fast.pretrain import trainer as trainer_module
from elmo_fast.pretrain.checkpoint import read_training_state
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import quiet, rows, same, toy_config

# Unlike the training text: at a high rate its perplexity after steps 2, 4 .. 16 is some 14, 17, 12, 11, 13, 11, 12, 12.
# That after step 8 is the best, that after step 12 the second best. Too short for lines on gaps.
HELDOUT = "the . cat\non . dog\nthe the the\n"


@pytest.fixture
def full_disk(monkeypatch):
    """full_disk(when): when(a folder that is to be made) says whether the disk has no room for it."""
    mkdir = os.mkdir

    def install(when):
        def made(path, *words, **named):
            if when(os.fspath(path)):
                raise OSError(28, "No space left on device", os.fspath(path))
            return mkdir(path, *words, **named)

        monkeypatch.setattr(os, "mkdir", made)

    return install


def trained(folder, name, steps=16, report=quiet, **changes):
    settings = {"n_epochs": 1000, "dropout": 0.1, "heldout_interval": 2, "checkpoint_interval": 3, "keep_best": True}
    settings |= {"save_dir": str(folder / name), "max_steps": steps, "learning_rate": 0.5}
    (folder / "heldout.txt").write_text(HELDOUT)
    config = toy_config(folder, **settings | {"heldout_prefix": str(folder / "heldout.txt")} | changes)
    return pretrain(config, report=report)


def kept(run):
    """The best checkpoint of a run: its step, what it says of itself, its weights."""
    state = read_training_state(run.folder / "checkpoints" / "best")
    return state.position.step, state.position.best, state.weights, state.optimizer


def test_the_best_checkpoint_is_kept_and_is_a_model_and_a_checkpoint(tmp_path):
    lines = []
    run = trained(tmp_path, "run", 14, lines.append, checkpoint_interval=2, keep_checkpoints=2)
    every = trained(tmp_path, "every", 14, checkpoint_interval=2, keep_checkpoints=99, keep_best=False)
    best = run.folder / "checkpoints" / "best"
    step, position, weights, sums = kept(run)
    assert (step, position.perplexity, position.step, position.worse) == (
        8,
        min(value for _, value in evaluated(run)),
        8,
        0,
    )
    reference = read_training_state(saved_steps(every.folder)[3][1])
    for actual, expected in ((weights, reference.weights), (sums, reference.optimizer)):
        assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
    assert [number for number, _ in saved_steps(run.folder)] == [12, 14]
    assert not (every.folder / "checkpoints" / "best").exists()
    assert LanguageModel.from_pretrained(best).options == run.model.options
    branch = trained(tmp_path, "branch", 12, lines.append, resume=str(best))
    assert any("resumes after step 8" in line for line in lines)
    assert kept(branch)[0] == 12, "the best of those in the folder"


def test_other_held_out_text_is_not_compared_with_the_text_before(tmp_path):
    before = evaluated(trained(tmp_path, "run", 8))[-1][1]
    (tmp_path / "other.txt").write_text("rug who lay\n")
    run = trained(tmp_path, "run", 10, heldout_prefix=str(tmp_path / "other.txt"))
    assert kept(run)[0] == 10
    assert evaluated(run)[-1][1] > before


def test_patience_ends_a_run_and_more_of_it_goes_on(tmp_path):
    """Equal is not better: at a rate of nearly nothing all evaluations are."""
    lines = []
    for report in (lines.append, quiet):
        run = trained(tmp_path, "run", report=report, patience=2)
        assert (run.steps, run.stopped_by) == (12, "patience")
    assert "held-out perplexity has not improved" in lines[-1]
    on = trained(tmp_path, "run", patience=9)
    assert (on.steps, on.stopped_by, kept(on)[0]) == (16, "steps", 8)
    equal = trained(tmp_path, "equal", patience=2, learning_rate=1e-30)
    assert (equal.steps, kept(equal)[0]) == (6, 2)


def test_a_run_in_pieces_has_the_same_best_and_ends_at_the_same_step(tmp_path, monkeypatch):
    """Killed before a save, at an evaluation or after it."""
    monkeypatch.setattr(trainer_module, "LONGEST_SILENCE", -1.0)  # a line at each step
    whole = trained(tmp_path, "whole", patience=3)
    for stop in (3, 6, 7, 8, 10):

        def die(line, stop=stop):
            if line.startswith("step ") and int(line.split()[1]) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, "pieces", report=die, patience=3, log_interval=1)
    pieces = trained(tmp_path, "pieces", patience=3, log_interval=1)
    assert (pieces.steps, pieces.stopped_by) == (whole.steps, whole.stopped_by) == (14, "patience")
    (step, position, *tensors), (wanted_step, reference, *wanted_tensors) = kept(pieces), kept(whole)
    assert (step, position) == (wanted_step, reference)
    for actual, expected in zip(tensors, wanted_tensors, strict=True):
        assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
    last = [read_training_state(saved_steps(run.folder)[-1][1]).position.best for run in (pieces, whole)]
    assert last[0] == last[1]
    assert (last[0].step, last[0].worse) == (8, 3)


def evaluated(run):
    """The steps and perplexities that the log has of a run."""
    return [(row["step"], row["perplexity"]) for row in rows(run.folder) if row.get("event") == "heldout"]


@pytest.mark.parametrize("best", [True, False])
def test_a_last_save_that_fails_is_completed_by_the_resumed_run(tmp_path, full_disk, best):
    """The save of the best checkpoint fails, and the log does not have the evaluation; or the one after it, and the log
    has it, and the disk not all of it."""
    slow = {"patience": 99, "learning_rate": 0.05}  # the perplexity after the last step is the best
    whole, last = trained(tmp_path, "whole", **slow), tmp_path / "pieces" / "checkpoints" / "step-0000016"
    # The first save of the last step is before its evaluation.
    full_disk(lambda path: last.exists() and ("/best/" in path if best else path.startswith(f"{last}/")))
    with pytest.raises(OSError, match="No space left"):
        trained(tmp_path, "pieces", **slow)
    logged = [row["step"] for row in rows(tmp_path / "pieces") if row.get("event") == "heldout"]
    assert (16 in logged) is not best, "a row comes after what it speaks of is on the disk"
    full_disk(lambda path: False)
    pieces = trained(tmp_path, "pieces", **slow)
    assert kept(pieces)[:2] == kept(whole)[:2]
    assert kept(pieces)[0] == 16
    assert evaluated(pieces) == evaluated(whole)
    last = [read_training_state(saved_steps(run.folder)[-1][1]).position.best for run in (pieces, whole)]
    assert last[0] == last[1]
    lines = []
    trained(tmp_path, "pieces", report=lines.append, **slow)
    assert not any(line.startswith(("eval   step", "saved")) for line in lines), "nothing is left to do"


def test_a_best_checkpoint_that_was_not_saved_is_not_the_best(tmp_path, full_disk):
    """The best evaluation is after step 8; where its save fails, that after step 12 is the best of those on disk."""
    lines, saved = [], tmp_path / "run" / "checkpoints"
    # Every third step is saved, after its evaluation.
    full_disk(lambda path: "/best/" in path and (saved / "step-0000006").exists() > (saved / "step-0000009").exists())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = trained(tmp_path, "run", 13, lines.append)
    assert kept(run)[0] == 12
    messages = [*lines, *(str(each.message) for each in caught)]
    assert any("training continues, and checkpoints/best stays as it was" in each for each in messages)


def test_a_save_killed_as_it_replaced_files_is_completed(tmp_path):
    """By the next run, as a writer; also one that was killed before it removed an older checkpoint."""
    run = trained(tmp_path, "run", 8)
    expected = [step for step, _ in saved_steps(run.folder)]
    shutil.copytree(saved_steps(run.folder)[0][1], run.folder / "checkpoints" / "step-0000002")
    best = run.folder / "checkpoints" / "best"
    shutil.copytree(best, best / ".new-files")
    shutil.copytree(best, best.with_name(".step-0000009.x7_3kq2a.partial"))
    (best / "position.json").unlink()
    assert kept(run)[0] == 8
    trained(tmp_path, "run", 8)
    assert not (best / ".new-files").exists()
    assert not best.with_name(".step-0000009.x7_3kq2a.partial").exists()
    assert kept(run)[0] == 8
    assert [step for step, _ in saved_steps(run.folder)] == expected


@pytest.fixture
def slow_clock(monkeypatch):
    """A backward pass takes a second, and an evaluation `took` of what this returns."""
    clock, to_eval, backward = SimpleNamespace(took=0.0, passed=0.0), torch.nn.Module.eval, torch.Tensor.backward

    def ran_backward(losses, *arguments):
        clock.passed += 1
        backward(losses, *arguments)

    def begun(model):
        clock.passed += clock.took
        return to_eval(model)

    monkeypatch.setattr(log_module, "time", SimpleNamespace(monotonic=lambda: clock.passed))
    monkeypatch.setattr(torch.Tensor, "backward", ran_backward)
    monkeypatch.setattr(torch.nn.Module, "eval", begun)
    return clock


def test_a_time_limit_does_not_count_as_an_evaluation_without_success(tmp_path, slow_clock):
    """It falls at any step; what it finds may be the best, though."""
    first = trained(tmp_path, "run", patience=1, heldout_interval=100, max_seconds=3.0, steps=1000)
    assert (first.steps, first.stopped_by) == (3, "time")
    state = read_training_state(saved_steps(first.folder)[-1][1]).position
    assert (state.best.worse, state.best.step) == (0, 3)


BY_TIME = {"heldout_interval": None, "max_seconds": 20.0, "steps": 1000}


def test_a_time_limit_alone_evaluates_about_ten_times_and_patience_counts(tmp_path, slow_clock):
    run = trained(tmp_path, "run", patience=3, **BY_TIME)
    assert [step for step, _ in evaluated(run)] == [2, 4, 6, 8, 10, 12, 14]
    assert (run.steps, run.stopped_by) == (14, "patience")
    whole = trained(tmp_path, "whole", **BY_TIME)
    assert [step for step, _ in evaluated(whole)] == [*range(2, 20, 2), 20]
    assert whole.stopped_by == "time"


@pytest.mark.parametrize(("took", "changes", "steps"), [(0, {"heldout_interval": 7}, [7, 14, 20]), (3, {}, [2, 14])])
def test_steps_decide_where_given_and_a_long_evaluation_puts_off_the_next(tmp_path, slow_clock, took, changes, steps):
    """Three seconds of evaluation, twelve of training."""
    slow_clock.took = took
    run = trained(tmp_path, "run", **BY_TIME | changes)
    assert [step for step, _ in evaluated(run)] == steps


def test_a_resumed_run_evaluates_by_the_same_clock(tmp_path, slow_clock, monkeypatch):
    """Killed between two evaluations and right after one; the weights are those of the undisturbed run."""
    monkeypatch.setattr(trainer_module, "LONGEST_SILENCE", -1.0)  # a line at each step
    whole = trained(tmp_path, "whole", patience=3, log_interval=1, checkpoint_interval=1, **BY_TIME)
    for stop in (3, 6, 7):

        def die(line, stop=stop):
            if line.startswith("step ") and int(line.split()[1]) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, "pieces", report=die, patience=3, log_interval=1, checkpoint_interval=1, **BY_TIME)
    pieces = trained(tmp_path, "pieces", patience=3, log_interval=1, checkpoint_interval=1, **BY_TIME)
    assert evaluated(pieces) == evaluated(whole)
    assert (pieces.steps, pieces.stopped_by) == (whole.steps, whole.stopped_by) == (14, "patience")
    assert same(pieces.model.state_dict(), whole.model.state_dict())
