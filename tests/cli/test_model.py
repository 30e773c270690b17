"""--model: one resolver for all; the folder of a killed run stands for its newest checkpoint, and it is said."""

import os

import pytest

from elmo_fast.checkpoints import load_checkpoint, save_folder
from tests.cli.conftest import ran, refused
from tests.support.command_line import elmo_fast
from tests.support.weights import make_weights


def test_a_misspelt_name_of_a_model_is_answered_with_the_nearest(tmp_path, monkeypatch):
    """By the one function that finds models for all commands (test_formats.py: for each)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the cat sat\n")
    said = "mnii: wanted a folder or archive, ", "a name that `elmo-fast models` lists (mini,", "did you mean mini?)"
    refused(elmo_fast("embed", "in.txt", "out", "--top", "--model", "mnii"), *said)
    ran("embed", "in.txt", "out", "--top", "--model", "mini")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder "run" of a killed run with two checkpoints, and a text next to it."""
    monkeypatch.chdir(tmp_path)
    for step in (900, 1000):
        model = load_checkpoint(None, *make_weights(tmp_path / "pair", seed=step, softmax=5))
        save_folder(tmp_path / "run" / "checkpoints" / f"step-{step:07d}", *model, extra={"pretraining_step": step})
    (tmp_path / "run" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\ncat\ndog\n")
    (tmp_path / "in.txt").write_text("the cat sat\n")
    return "run"


def test_a_killed_run_is_its_newest_checkpoint_and_that_is_said(run):
    """And its vocabulary is in the run's folder."""
    output = ran("convert", "--to", "hdf5", "--out_dir", "out", "--model", run).stderr
    assert "model  run/checkpoints/step-0001000, the newest checkpoint of an unfinished run\n" in output
    assert os.path.exists("out/vocab.txt")


def test_a_finished_run_is_itself_and_nothing_is_said(run):
    save_folder("run", *load_checkpoint("run/checkpoints/step-0000900"), extra={"pretraining_step": 1000})
    assert "model" not in ran("embed", "in.txt", "out", "--top", "--model", run).stderr
