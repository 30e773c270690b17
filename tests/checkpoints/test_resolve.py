"""Where models are looked for: own folder, bilm-tf's folder, a pair of files; anything else is an error of one
sentence."""

import shutil

import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import (
    file_beside,
    load_checkpoint,
    model_files,
    model_folder,
    save_folder,
    write_bilm_hdf5,
    write_options,
)
from elmo_fast.errors import CheckpointError
from tests.support.weights import make_weights


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_folder_prefers_own_then_model_hdf5_then_weights_hdf5(tmp_path):
    _, weights = make_weights(tmp_path, seed=1)
    (tmp_path / "a.hdf5").write_bytes(b"never read")
    state, options = load_checkpoint(tmp_path)
    weights.rename(tmp_path / "b.hdf5")
    with pytest.raises(CheckpointError, match=r"several models: options.json with a.hdf5; options.json with b.hdf5"):
        load_checkpoint(tmp_path)
    (tmp_path / "a.hdf5").unlink()
    assert equal(load_checkpoint(tmp_path)[0], state)
    (tmp_path / "b.hdf5").rename(weights)
    _, other = make_weights(tmp_path / "other", seed=2)
    shutil.copy(other, tmp_path / "model.hdf5")
    second, _ = load_checkpoint(tmp_path)
    assert not equal(second, state)
    save_folder(tmp_path, state, options)
    assert equal(load_checkpoint(tmp_path)[0], state)
    (tmp_path / "model.safetensors").unlink()
    assert equal(load_checkpoint(tmp_path)[0], second)
    (tmp_path / "options.json").unlink()
    with pytest.raises(CheckpointError, match=r"wanted config\.json and model\.safetensors, or .*, found config\.json"):
        load_checkpoint(tmp_path)


PUBLISHED = "elmo_2x4096_512_2048cnn_2xhighway"


def published(folder, name, seed):
    """A pair of files called as published; its state."""
    options, weights = make_weights(folder / "made", seed=seed)
    state, _ = load_checkpoint(options_file=options, weight_file=weights)
    options.rename(folder / f"{name}_options.json")
    weights.rename(folder / f"{name}_weights.hdf5")
    return state


def test_a_folder_with_the_published_names_is_a_model(tmp_path):
    """By load_checkpoint and all that stands on it; two pairs are refused with their names."""
    state = published(tmp_path, PUBLISHED, 1)
    (tmp_path / "vectors.hdf5").write_bytes(b"never read")
    assert equal(load_checkpoint(tmp_path)[0], state)
    assert [file.name for file in model_files(tmp_path)] == [f"{PUBLISHED}_options.json", f"{PUBLISHED}_weights.hdf5"]
    for read in (ElmoEmbedder.from_pretrained(tmp_path), ElmoEmbedder(tmp_path, None)):
        assert equal(read.elmo_bilm.state_dict(), state)
    published(tmp_path, f"{PUBLISHED}_5.5B", 2)
    both = rf"{PUBLISHED}_5.5B_options.json with {PUBLISHED}_5.5B_weights.hdf5; {PUBLISHED}_options.json with"
    with pytest.raises(
        CheckpointError, match=f"contains several models: {both} .*choose one with options_file and weight_file"
    ):
        load_checkpoint(tmp_path)


def test_the_softmax_may_lie_beside_the_weights(tmp_path):
    """softmax.hdf5 of a folder, or the file named, is read with the weights, and is never taken for them."""
    options_file, weight_file = make_weights(tmp_path / "pair", softmax=7)
    state, options = load_checkpoint(None, options_file, weight_file)
    folder = tmp_path / "apart"
    write_options(folder / "options.json", options)
    softmax = folder / "softmax.hdf5"
    write_bilm_hdf5(folder / "weights.hdf5", state, options, softmax_file=softmax)
    assert equal(load_checkpoint(folder)[0], state)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(softmax, tmp_path / "elsewhere" / "other-name.hdf5")
    files = (folder / "options.json", folder / "weights.hdf5")
    assert equal(load_checkpoint(None, *files, moved)[0], state)
    without, _ = load_checkpoint(folder)
    assert state.keys() - without.keys() == {"softmax.weight", "softmax.bias"}
    with pytest.raises(CheckpointError, match=r"softmax_file needs HDF5 weights; got .*other-name\.hdf5 with"):
        load_checkpoint(None, files[0], "weights.th", moved)
    with pytest.raises(CheckpointError, match="weight_file, which softmax_file needs; got both"):
        load_checkpoint(folder, softmax_file=moved)
    shutil.move(folder / "weights.hdf5", tmp_path)
    shutil.move(moved, softmax)
    with pytest.raises(CheckpointError, match=r"a \*\.hdf5, found options\.json, softmax\.hdf5"):
        load_checkpoint(folder)


def test_a_runs_folder_stands_for_its_model_or_its_newest_checkpoint(tmp_path):
    """Steps are compared as numbers, the finished model's too; what is written aside is none."""
    for name in ("step-0000900", "step-0001000", ".unfinished-step-2000", "step-x"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    newest = tmp_path / "checkpoints" / "step-0001000"
    assert model_folder(tmp_path) == newest
    assert model_folder(newest) == newest
    assert file_beside(newest) is None
    (tmp_path / "vocab.txt").write_text("")
    (tmp_path / "other" / "deep").mkdir(parents=True)
    assert file_beside(newest) == file_beside(tmp_path) == tmp_path / "vocab.txt"
    assert file_beside(tmp_path / "other" / "deep") is None
    model = load_checkpoint(None, *make_weights(tmp_path / "pair"))
    for step, expected in ((999, newest), (1000, tmp_path), (None, newest)):
        save_folder(tmp_path, *model, extra=None if step is None else {"pretraining_step": step})
        assert model_folder(str(tmp_path)) == expected


@pytest.mark.parametrize("address", ["s3://b/o.json", "HTTPS://X.org"])
def test_addresses_are_refused(address):
    for arguments in ({"model": address}, {"options_file": address, "weight_file": "w.hdf5"}):
        with pytest.raises(CheckpointError, match=r"must be a path; got the address .*; download the file"):
            load_checkpoint(**arguments)
    with pytest.raises(CheckpointError, match="weight_file must be a path; got"):
        load_checkpoint(options_file="o.json", weight_file=address)


def test_what_is_not_there_is_said(tmp_path):
    options_file, weight_file = make_weights(tmp_path / "pair")
    for arguments, message in (
        ({}, "give model, or options_file and weight_file; got options_file=None, weight_file=None"),
        ({"options_file": options_file}, "weight_file=None"),
        ({"weight_file": weight_file}, "options_file=None"),
        (
            {"model": tmp_path, "options_file": options_file},
            "weight_file, which softmax_file needs; got both",
        ),
        ({"model": tmp_path / "absent"}, r"wanted a folder with a model, or its \.zip or \.tar\.gz, found nothing"),
        ({"model": weight_file}, "found a file; give the folder of its files, or both where options_file"),
        (
            {"model": tmp_path},
            r"wanted config\.json and model\.safetensors, or options\.json and a \*\.hdf5, found pair",
        ),
        (
            {"options_file": weight_file, "weight_file": weight_file},
            r"weights\.hdf5: wanted options\.json as options_file",
        ),
        ({"options_file": options_file, "weight_file": options_file}, r"options\.json: not an HDF5 file"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(**arguments)
