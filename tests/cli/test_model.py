"""--model: one resolver for all; the folder of a killed run stands for its newest checkpoint, and it is said."""

import os

import h5py
import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import load_checkpoint, save_folder
from tests.cli.conftest import ran, refused
from tests.command_line import elmo_fast
from tests.weights import make_weights

COMMANDS = {
    "embed": "embed in.txt out --top",
    "neighbours": "neighbours --corpus in.txt --query cat --index 0",
    "cache-vocab": "cache-vocab --vocab_file run/vocab.txt --output out",
    "eval": "eval --test_prefix in.txt",
    "convert": "convert --to hdf5 --out_dir out",
    "static export": "static export --vocab_file run/vocab.txt --output out.txt",
    "plot projector": "plot projector --words cat dog --out_dir out",
}


# Arguments other than --model that name a model; and the command's error for one that lacks what it needs.
OTHERS = {
    "pretrain": "pretrain --train_prefix in.txt --vocab_file run/vocab.txt --max_steps 1 --batch_size 1 --save_dir s "
    "--init_from",
    "plot layers": "plot layers",
    "upload": "upload {} me/mini --licence mit",
    "task train": "task train --train_path in.conll --dev_path in.conll --elmo input --save_dir s --epochs 1 --model",
    "report": "report --train_path in.conll --dev_path in.conll --test_path in.conll --save_dir out --model",
}
LACKS = {
    "eval": "this checkpoint has no softmax weights",
    "plot layers": "contains no layer weights",
    "upload": "mini/README.md exists and will be the page",
    "report": "",
}


@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS])
@pytest.mark.filterwarnings("ignore:.* weights were rounded to int8", "ignore:.* are outside the vocabulary")
def test_every_command_knows_the_names_of_models_and_their_misspellings(tmp_path, monkeypatch, command):
    """The name of the bundled model is a model; a misspelt one is answered with the closest, in the same sentence."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("the cat sat\n")
    (tmp_path / "in.conll").write_text("the\tX\ncat\tY\n\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\ncat\ndog\n")
    words = OTHERS.get(command) or f"{COMMANDS[command]} --model"
    words = words if "{}" in words else f"{words} {{}}"
    said = "mnii: wanted a folder or archive, ", "a name that `elmo-fast models` lists (mini,", "did you mean mini?)"
    refused(elmo_fast(*words.format("mnii").split()), *said)
    if command not in LACKS:
        ran(*words.format("mini").split())
    elif LACKS[command]:
        refused(elmo_fast(*words.format("mini").split()), LACKS[command])


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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_killed_run_is_its_newest_checkpoint_and_that_is_said(run, command):
    output = ran(*COMMANDS[command].split(), "--model", run).stderr
    assert "model  run/checkpoints/step-0001000, the newest checkpoint of an unfinished run\n" in output
    assert os.path.exists("out/vocab.txt") == (command == "convert")


def test_the_vectors_are_those_of_the_newest_checkpoint(run):
    assert ran("embed", "in.txt", "out", "--top", "--model", run, "--format", "hdf5-flat", "-q").stderr == ""
    expected = ElmoEmbedder("run/checkpoints/step-0001000", None).embed_sentence(["the", "cat", "sat"])[-1]
    with h5py.File("out") as file:
        np.testing.assert_array_equal(file["embeddings"][:, 0], expected)
        assert file.attrs["model"] == "run/checkpoints/step-0001000"


def test_a_finished_run_is_itself_and_nothing_is_said(run):
    save_folder("run", *load_checkpoint("run/checkpoints/step-0000900"), extra={"pretraining_step": 1000})
    assert "model" not in ran("embed", "in.txt", "out", "--top", "--model", run).stderr
