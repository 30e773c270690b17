"""The own format: exact round trips, whole or not written, damage and other versions refused by name."""

import json

import pytest
import safetensors.torch
import torch

from elmo_fast.checkpoints import load_folder, read_bilm_hdf5, read_config, read_options, save_folder
from elmo_fast.errors import CheckpointError
from tests.support.weights import make_weights


@pytest.fixture
def model(tmp_path):
    options_file, weight_file = make_weights(tmp_path / "hdf5", softmax=12)
    options = read_options(options_file)
    state = read_bilm_hdf5(weight_file, options)
    state |= {"scalar_mix_0.gamma": torch.ones(1)}
    state |= {f"scalar_mix_0.scalar_parameters.{j}": torch.randn(1) for j in range(3)}
    return state, options


def test_round_trip_is_exact_and_keeps_what_else_is_there(model, tmp_path):
    state, options = model
    folder = tmp_path / "deep" / "own"
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("<S>\n")
    save_folder(folder, state, options, {"step": 7, "note": "ä"})
    save_folder(str(folder), state, options, {"step": 8, "note": "ä"})
    header = (folder / "model.safetensors").read_bytes()[8:70]
    assert header.startswith(b'{"__metadata__":{"format":"pt"},'), "several entries change their order from run to run"
    read, read_back = load_folder(str(folder))
    assert read_back == options
    assert read.keys() == state.keys()
    assert all(torch.equal(read[k].view(torch.int32), state[k].view(torch.int32)) for k in state)
    assert read_config(folder)["extra"] == {"step": 8, "note": "ä"}
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
        "vocab.txt",
    ]
    assert read_options(folder / "config.json") == options


def test_views_and_shared_tensors_are_written_in_full(model, tmp_path):
    state, options = model
    name = "_token_embedder._highways._layers.0.bias"
    shared = torch.randn(2, 96)[1, ::2]
    state[name] = shared
    state["_token_embedder._highways._layers.1.bias"] = shared
    weight = state["_token_embedder._projection.weight"]
    state["_token_embedder._projection.weight"] = weight.T.contiguous().T
    save_folder(tmp_path / "own", state, options)
    read, _ = load_folder(tmp_path / "own")
    assert all(torch.equal(read[k], state[k]) for k in state)


def test_a_state_that_does_not_fit_leaves_the_folder_as_it_was(model, tmp_path, monkeypatch):
    state, options = model
    folder = tmp_path / "own"
    save_folder(folder, state, options)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    name = "_token_embedder._projection.bias"
    with pytest.raises(CheckpointError, match=r"projection.bias: wanted shape \[8\], found \[3\]"):
        save_folder(folder, {**state, name: torch.zeros(3)}, options)
    for extra in ({"x": object()}, {"x": float("nan")}, {"x": torch.zeros(1)}):
        with pytest.raises(CheckpointError, match="extra: wanted a JSON value"):
            save_folder(folder, state, options, extra)

    def interrupted(tensors, path, metadata):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.torch, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_folder(folder, {**state, name: torch.zeros(8)}, options)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def edited(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: edited(f, format_version=2), r"config\.json: format_version: wanted 1, found 2"),
        (lambda f: edited(f, format="other"), 'format: wanted "elmo_fast"'),
        (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors: cannot be read"),
        (
            lambda f: (f / "model.safetensors").write_bytes(b""),
            r"model\.safetensors: not a safetensors file, or damaged",
        ),
    ],
)
def test_every_damage_is_named(model, tmp_path, damage, message):
    folder = tmp_path / "own"
    save_folder(folder, *model)
    (folder / "manifest.json").unlink(missing_ok=True)
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load_folder(folder)
