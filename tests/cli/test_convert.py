"""convert: the softmax and the vocabulary go along, bit by bit, and a softmax of another model is refused by name."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest
import torch

from elmo_fast.checkpoints import load_checkpoint
from elmo_fast.cli import models
from elmo_fast.cli.main import main
from elmo_fast.text import Vocabulary
from tests.cli.conftest import pair
from tests.manylangs import write_model
from tests.weights import make_weights

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "."]


@pytest.fixture
def pretrained(tmp_path):
    """A folder of the own format, with a softmax of WORDS and vocab.txt, as pretraining leaves one."""
    options, weights = make_weights(tmp_path / "source", softmax=len(WORDS))
    Vocabulary(WORDS).write(tmp_path / "source" / "vocab.txt")
    words = ["--options-file", options, "--weight-file", weights, "--outdir", tmp_path / "own"]
    assert main(["convert", "--to", "safetensors", *map(str, words)]) == 0
    return tmp_path / "own"


@pytest.fixture
def converted(pretrained, tmp_path):
    """`pretrained` in bilm-tf's format."""
    folder = tmp_path / "bilm-tf"
    assert main(["convert", "--model", str(pretrained), "--to", "hdf5", "--outdir", str(folder)]) == 0
    return folder


def test_there_and_back_is_exact_with_softmax_and_vocabulary(pretrained, converted, tmp_path, capsys):
    """The softmax has a file of its own, with the names of bilm-tf's variables and the very numbers."""
    assert sorted(os.listdir(converted)) == ["options.json", "softmax.hdf5", "vocab.txt", "weights.hdf5"]
    state, options = load_checkpoint(pretrained)
    with h5py.File(converted / "softmax.hdf5") as softmax, h5py.File(converted / "weights.hdf5") as weights:
        assert (softmax["softmax/W"].dtype, softmax["softmax/b"].dtype) == (np.float32, np.float32)
        np.testing.assert_array_equal(softmax["softmax/W"][()], state["softmax.weight"].numpy())
        np.testing.assert_array_equal(softmax["softmax/b"][()], state["softmax.bias"].numpy())
        assert "softmax" not in weights
    assert json.loads((converted / "options.json").read_text())["char_cnn"]["n_characters"] == 262
    assert main(["convert", "--model", str(converted), "--to", "safetensors", "--outdir", str(tmp_path / "back")]) == 0
    out = capsys.readouterr().out
    assert "config.json, model.safetensors, manifest.json, vocab.txt | read back, weights and vectors of" in out
    assert out.endswith("sample text differ by at most 0\n")
    for folder in (converted, tmp_path / "back"):
        again, options_again = load_checkpoint(folder)
        assert again.keys() == state.keys()
        assert all(torch.equal(again[name].view(torch.int32), state[name].view(torch.int32)) for name in state)
        assert options_again == options
        assert (folder / "vocab.txt").read_bytes() == (pretrained / "vocab.txt").read_bytes()


@pytest.mark.parametrize("named", ["folder", "files"])
def test_eval_of_the_converted_model_says_the_same(pretrained, converted, tmp_path, capsys, named):
    (tmp_path / "text").write_text("the cat sat .\nthe dog sat\n")
    files = [f"--{name}_file={converted / name}.hdf5" for name in ("weights", "softmax")]
    files[0] = files[0].replace("weights_file", "weight_file")
    named_by_files = [*files, f"--options_file={converted}/options.json", f"--vocab_file={converted}/vocab.txt"]
    words = [f"--model={converted}"] if named == "folder" else named_by_files
    printed = []
    for model in ([f"--model={pretrained}"], words):
        capsys.readouterr()
        assert main(["eval", *model, "--test_prefix", str(tmp_path / "text"), "-q"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "perplexity" in printed[0]


def test_a_folder_that_holds_parts_of_another_model_is_refused(pretrained, tmp_path, capsys):
    """A softmax left there would be read as the new model's."""
    for name in ("softmax.hdf5", "vocab.txt"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("")
        assert main(["convert", "--model", str(pretrained), "--to", "hdf5", "--outdir", str(folder)]) == 2
        assert f"{name}' exists already" in capsys.readouterr().err
        assert os.listdir(folder) == [name]


def test_a_softmax_file_beside_a_folder_or_alone_is_refused(pretrained, converted, toy, tmp_path, capsys):
    softmax = ["--softmax_file", str(converted / "softmax.hdf5")]
    words = ["convert", "--to", "hdf5", "--outdir", str(tmp_path / "out"), *softmax]
    assert main([*words, "--model", str(pretrained)]) == 2
    assert "--softmax_file needs --options_file and --weight_file" in capsys.readouterr().err
    assert main(words) == 2
    assert "name a model with --model FOLDER" in capsys.readouterr().err

    assert main(["convert", "--to", "hdf5", "--outdir", str(tmp_path), *pair(toy), "--softmax-file", "absent"]) == 2
    assert "--softmax_file must be a file; there is no 'absent': check the spelling" in capsys.readouterr().err


def test_a_model_of_lexicons_goes_to_our_format_and_not_to_bilm_tfs(tmp_path, capsys):
    """As a folder and as an archive; nothing is written where the format has no place for it."""
    folder = write_model(tmp_path / "manylangs")
    archive = shutil.make_archive(str(tmp_path / "144"), "zip", folder)
    for model in (str(folder), archive):
        out = tmp_path / f"own of {os.path.basename(model)}"
        assert main(["convert", "--model", model, "--to", "safetensors", "--out_dir", str(out)]) == 0
        assert "read back, weights and vectors of sample text differ by at most 0\n" in capsys.readouterr().out
    assert main(["convert", "--model", str(folder), "--to", "hdf5", "--out_dir", str(tmp_path / "hdf5")]) == 2
    assert "bilm-tf's format cannot store this model: its characters and words" in capsys.readouterr().err
    assert not (tmp_path / "hdf5").exists()


def test_convert_takes_a_model_that_differs_away_again(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(models, "largest_difference", lambda *words, **more: float("nan"))
    assert main(["convert", *pair(toy), "--to", "hdf5", "--outdir", str(tmp_path / "out")]) == 2
    assert "the written model differs" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


def test_a_model_of_word_ids_is_converted(tmp_path, capsys):
    options, weights = make_weights(tmp_path / "words", words=11)
    words = ["convert", "--options-file", str(options), "--weight-file", str(weights), "--to", "safetensors"]
    assert main([*words, "--outdir", str(tmp_path / "own")]) == 0
    assert "differ by at most 0" in capsys.readouterr().out
