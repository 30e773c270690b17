"""Weights as int8: written, read back in float32, refused when damaged."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from elmo_fast import Elmo, batch_to_ids
from elmo_fast.checkpoints import from_int8, load_checkpoint, load_folder, save_folder, to_int8
from elmo_fast.cli.main import main
from elmo_fast.errors import CheckpointError
from elmo_fast.ops._precision import quantized
from tests.support.weights import make_weights

IDS = batch_to_ids([["The", "cat", "sat"], ["Again"]])


@pytest.fixture
def files(tmp_path):
    return make_weights(tmp_path / "model", cell=64, proj=32)


@pytest.mark.parametrize("name", ["_elmo_lstm.forward_layer_0.state_linearity.weight", "softmax.weight"])
def test_integers_are_those_that_the_ops_multiply(tmp_path, name):
    """The softmax, which no op multiplies as int8, is stored alike."""
    state, _ = load_checkpoint(None, *make_weights(tmp_path, cell=64, proj=32, softmax=9), None)
    state[name][0] = 0.0
    held = to_int8(state)
    expected = quantized(state[name])
    assert torch.equal(held[name].double(), expected.integers)
    assert torch.equal(held[name + ".scale"], expected.scale[:, 0])
    again = from_int8(held, "a file")
    assert again.keys() == state.keys()
    torch.testing.assert_close(again[name], state[name], rtol=0, atol=state[name].abs().max().item() / 253)
    assert torch.equal(to_int8(again)[name], held[name])
    assert again["_token_embedder.char_conv_0.weight"] is state["_token_embedder.char_conv_0.weight"]


def test_a_saved_model_is_smaller_and_gives_the_vectors_of_int8(files, tmp_path):
    model = Elmo(*files, 1, stateful=False, dropout=0.0, precision="int8")
    model.save_pretrained(tmp_path / "float32")
    model.save_pretrained(tmp_path / "int8", precision="int8")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < 0.45 * sizes[1]
    again = Elmo.from_pretrained(tmp_path / "int8", precision="int8", stateful=False)
    with torch.no_grad():
        actual, expected = (each(IDS)["elmo_representations"][0].numpy() for each in (again, model))
    assert np.sqrt(((actual - expected) ** 2).mean() / (expected**2).mean()) < 2e-3


@pytest.mark.parametrize("damage", ["no scale", "another shape"])
def test_scales_that_do_not_fit_are_named(files, tmp_path, damage):
    state, options = load_checkpoint(None, *files, None)
    save_folder(tmp_path / "int8", state, options, precision="int8")
    held = load_file(tmp_path / "int8" / "model.safetensors")
    name = "_token_embedder._projection.weight.scale"
    if damage == "no scale":
        del held[name]
    else:
        held[name] = held[name][:-1]
    save_file(held, tmp_path / "int8" / "model.safetensors")
    (tmp_path / "int8" / "manifest.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"safetensors: .*_projection\.weight\.scale: wanted float32 \[32\], found"
    ):
        load_folder(tmp_path / "int8")


def test_convert_writes_and_verifies(files, tmp_path, capsys):
    options, weights = map(str, files)
    pair = ["convert", "--options_file", options, "--weight_file", weights]
    assert main([*pair, "--to", "safetensors", "--precision", "int8", "--out_dir", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.endswith("weights differ by at most 0 from the weights rounded to int8\n")
    assert load_folder(tmp_path / "out")[0].keys() == load_checkpoint(None, *files, None)[0].keys()
    assert main([*pair, "--to", "hdf5", "--precision", "int8", "--out_dir", str(tmp_path / "other")]) == 2
    assert "--precision int8 needs --to safetensors" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
