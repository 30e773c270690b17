"""The folder of a task: a killed run resumes bit for bit, and what has changed or is of another run is refused."""

import dataclasses
import json
import multiprocessing
import os
import shutil
import signal

import pytest
import torch

from elmo_fast._io.locks import folder_lock
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.tasks.run import load_task, train_task
from elmo_fast.tasks.trainer import STATE
from tests.tasks.toy import silent, toy_config, weights_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    train_task(toy_config(folder, epochs=1), silent)
    return folder / "run"


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def test_changed_content_is_an_error_unless_the_manifest_is_removed(folder):
    labels = json.loads((folder / "labels.json").read_text())
    (folder / "labels.json").write_text(json.dumps(labels[::-1]))
    with pytest.raises(CheckpointError, match=r"labels\.json: damaged, or changed .* delete \S*manifest\.json"):
        load_task(folder)
    (folder / "manifest.json").unlink()
    with pytest.warns(UserWarning, match=r"whether task\.json, labels\.json, words\.json, .* could not be checked"):
        load_task(folder)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("labels.json", "[]", "labels must be one or more, all different; got none"),
        ("labels.json", '["DET"]', r"task\.safetensors: is not of this configuration; .* of another shape: \S"),
        ("words.json", "{}", r"words\.json: wanted a list, found an object"),
        ("task.json", '{"task": 3}', r"task\.json: task: wanted one of tag, classify, found 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* has no manifest.json")
def test_wrong_types_in_a_folder_without_a_manifest_are_named(folder, name, content, sentence):
    (folder / "manifest.json").unlink()
    (folder / name).write_text(content)
    with pytest.raises(ElmoFastError, match=sentence):
        load_task(folder)


def train_and_die(config):
    """Train, and be killed by the third writing of the state."""

    def report(line):
        if line.startswith("epoch   2 "):
            os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)

    train_task(config, report)


def test_a_run_that_is_killed_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """Killed while it writes the state after the third epoch, it ends with the weights of an undisturbed run."""
    plain = toy_config(tmp_path, save_dir=str(tmp_path / "plain"), elmo="both", dropout=0.3, patience=0,
                       fine_tune=True, crf=True, characters=True, epochs=4)  # fmt: skip
    train_task(plain, silent)
    killed = dataclasses.replace(plain, save_dir=str(tmp_path / "killed"))
    # Not forked: autograd's threads, which exist where torch sees a GPU, do not outlive a fork.
    child = multiprocessing.get_context("spawn").Process(target=train_and_die, args=(killed,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    lines = []
    result = train_task(killed, lines.append)
    assert any("goes on after epoch 2" in line for line in lines)
    assert [row["loss"] for row in result.epochs] == [
        row["loss"] for row in json.loads((tmp_path / "plain" / "results.json").read_text())["epochs"]
    ]
    first, second = weights_of(plain), weights_of(killed)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_more_epochs_go_on_and_other_settings_are_refused(tmp_path):
    config = toy_config(tmp_path, epochs=2, patience=0)
    train_task(config, silent)
    longer = train_task(dataclasses.replace(config, epochs=3), silent)
    assert [row["epoch"] for row in longer.epochs] == [1, 2, 3]
    with pytest.raises(ElmoFastError, match=r"holds a run of other settings \(hidden was 16, now 8\).*--resume false"):
        train_task(dataclasses.replace(config, hidden=8), silent)
    retrained = train_task(dataclasses.replace(config, hidden=8, resume=False), silent)
    assert len(retrained.epochs) == 2
    with open(config.train_path, "a") as file:
        file.write("Ann\tNAME\n\n")
    with pytest.raises(ElmoFastError, match="the sentences of train_path or dev_path"):
        train_task(dataclasses.replace(config, hidden=8), silent)


def test_a_damaged_state_is_refused(whole, folder):
    path = folder / STATE / "position.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ElmoFastError, match=r"position\.json: "):
        train_task(toy_config(whole.parent, epochs=2, save_dir=str(folder)), silent)


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path):
    config = toy_config(tmp_path)
    with folder_lock(tmp_path / "run"), pytest.raises(ElmoFastError, match="trains there now"):
        train_task(config, silent)
    assert not (tmp_path / "run" / STATE).exists()
