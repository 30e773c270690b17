"""convert: the softmax and the vocabulary go along, bit by bit, and a softmax of another model is refused by name."""

import json
import os
import shutil
import signal

import h5py
import numpy as np
import pytest
import torch

from elmo_fast.checkpoints import load_checkpoint
from elmo_fast.cli import models
from elmo_fast.text import Vocabulary
from tests.cli.conftest import pair, ran, refused
from tests.support.command_line import elmo_fast
from tests.support.manylangs import write_model
from tests.support.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "."]


@pytest.fixture
def pretrained(tmp_path):
    """A folder of the own format, with a softmax of WORDS and vocab.txt, as pretraining leaves one."""
    source = make_weights(tmp_path / "source", softmax=len(WORDS))
    Vocabulary(WORDS).write(tmp_path / "source" / "vocab.txt")
    ran("convert", *pair(source), "--out_dir", tmp_path / "own")  # the default of --to
    return tmp_path / "own"


@pytest.fixture
def converted(pretrained, tmp_path):
    """`pretrained` in bilm-tf's format."""
    ran("convert", "--model", pretrained, "--to", "hdf5", "--out_dir", tmp_path / "bilm-tf")
    return tmp_path / "bilm-tf"


def test_there_and_back_is_exact_with_softmax_and_vocabulary(pretrained, converted, tmp_path):
    """The softmax has a file of its own, with the names of bilm-tf's variables and the very numbers."""
    assert sorted(os.listdir(converted)) == [
        "manifest.json", "options.json", "softmax.hdf5", "vocab.txt", "weights.hdf5",
    ]  # fmt: skip
    state, options = load_checkpoint(pretrained)
    with h5py.File(converted / "softmax.hdf5") as softmax, h5py.File(converted / "weights.hdf5") as weights:
        for actual, name in (("weight", "W"), ("bias", "b")):
            assert softmax[f"softmax/{name}"].dtype == np.float32
            np.testing.assert_array_equal(softmax[f"softmax/{name}"][()], state[f"softmax.{actual}"].numpy())
        assert "softmax" not in weights
    assert json.loads((converted / "options.json").read_text())["char_cnn"]["n_characters"] == 262
    output = ran("convert", "--model", converted, "--to", "safetensors", "--out_dir", tmp_path / "back").stdout
    assert "config.json, model.safetensors, manifest.json, vocab.txt | read back, weights and vectors of" in output
    assert output.endswith("sample text differ by at most 0\n")
    for folder in (converted, tmp_path / "back"):
        again, options_again = load_checkpoint(folder)
        assert again.keys() == state.keys()
        assert all(torch.equal(again[name].view(torch.int32), state[name].view(torch.int32)) for name in state)
        assert options_again == options
        assert (folder / "vocab.txt").read_bytes() == (pretrained / "vocab.txt").read_bytes()


def test_a_folder_that_holds_parts_of_another_model_is_refused(pretrained, tmp_path):
    """A softmax left there would be read as the new model's."""
    for name in ("softmax.hdf5", "vocab.txt"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("")
        done = elmo_fast("convert", "--model", pretrained, "--to", "hdf5", "--out_dir", folder)
        refused(done, f"{name}' exists already")
        assert os.listdir(folder) == [name]


def test_a_softmax_file_beside_a_folder_or_alone_is_refused(pretrained, converted, tmp_path):
    words = ["convert", "--to", "hdf5", "--out_dir", tmp_path / "out", "--softmax_file", converted / "softmax.hdf5"]
    refused(elmo_fast(*words, "--model", pretrained), "weight_file, which softmax_file needs; got both")
    refused(elmo_fast(*words), "name a model with --model FOLDER")


def test_a_model_of_lexicons_goes_to_our_format_and_not_to_bilm_tfs(tmp_path):
    """To a folder and to an archive; nothing is written if the format cannot express it."""
    folder = write_model(tmp_path / "manylangs")
    archive = shutil.make_archive(str(tmp_path / "144"), "zip", folder)
    for model in (str(folder), archive):
        out = tmp_path / f"own of {os.path.basename(model)}"
        output = ran("convert", "--model", model, "--to", "safetensors", "--out_dir", out).stdout
        assert "read back, weights and vectors of sample text differ by at most 0\n" in output
    done = elmo_fast("convert", "--model", folder, "--to", "hdf5", "--out_dir", tmp_path / "hdf5")
    refused(done, "bilm-tf's format cannot store this model: its characters and words")
    assert not (tmp_path / "hdf5").exists()


def test_convert_takes_a_model_that_differs_away_again(toy, tmp_path, monkeypatch):
    """As where a disk or a library writes other numbers."""
    create = h5py.Group.create_dataset
    monkeypatch.setattr(h5py.Group, "create_dataset", lambda group, name, data: create(group, name, data=data + 1))
    done = elmo_fast("convert", *pair(toy), "--to", "hdf5", "--out_dir", tmp_path / "out")
    refused(done, "the written model differs")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["hdf5", "safetensors"])
def test_a_killed_conversion_is_repeated_by_the_same_command(toy, tmp_path, to):
    """Killed when the files are written and not yet in place, it leaves nothing that the next one refuses or keeps."""
    words = ("convert", *pair(toy), "--to", to, "--out_dir", tmp_path / "out")
    child = os.fork()
    if child == 0:
        rename = os.rename

        def killed(old, new):
            if os.fspath(new) == os.fspath(tmp_path / "out"):
                os.kill(os.getpid(), signal.SIGKILL)
            rename(old, new)

        os.rename = killed
        elmo_fast(*words)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    ran(*words)
    assert set(os.listdir(tmp_path / "out")) <= set(models.WRITTEN[to])
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".out")]
    ran("info", "--model", tmp_path / "out")
