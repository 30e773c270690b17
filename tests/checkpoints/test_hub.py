"""Models by name: a folder before the hub, the model's files alone both ways, every failure in one sentence."""

import inspect
import pathlib
import sys

import pytest
import torch

from elmo_fast.checkpoints import download, load_checkpoint, model_files, pretrained_folder, save_folder, upload
from elmo_fast.errors import CheckpointError
from tests.support.fake_hub import FakeHub, NoAnswer
from tests.support.manylangs import write_model
from tests.support.weights import make_weights


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return FakeHub(tmp_path / "cache").install(monkeypatch)


@pytest.fixture
def model(tmp_path):
    """A folder of elmo_fast's format among the other files of a run."""
    folder = tmp_path / "model"
    save_folder(folder, *load_checkpoint(None, *make_weights(tmp_path / "pair")))
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    return folder


def uploaded(hub, model, name="me/elmo", private=False):
    return upload(name, [*model_files(model), model / "vocab.txt"], "# card\n", private=private)


def test_up_and_down_again_is_the_same_model(hub, model, tmp_path):
    assert uploaded(hub, model) == "https://hub.test/me/elmo"
    assert hub.repos["me/elmo"] == {
        **{
            name: (model / name).read_bytes()
            for name in ("config.json", "manifest.json", "model.safetensors", "vocab.txt")
        },
        "README.md": b"# card\n",
    }
    state, options = load_checkpoint(model)
    for folder in (download("me/elmo"), download("me/elmo@v1", tmp_path / "here"), pretrained_folder("me/elmo")):
        again, options_again = load_checkpoint(folder)
        assert options_again == options
        assert all(torch.equal(again[name], state[name]) for name in state)
        assert sorted(path.name for path in folder.iterdir()) == sorted(hub.repos["me/elmo"])
    revisions = [arguments["revision"] for called, _, arguments in hub.calls if called == "snapshot_download"]
    assert revisions == [None, "v1", None]


def test_only_a_models_files_are_fetched(hub, model, tmp_path):
    uploaded(hub, model)
    hub.repos["me/elmo"] |= {"checkpoints/config.json": b"x", "logs/a.hdf5": b"x", "optimiser.safetensors": b"x"}
    hub.repos["me/elmo"] |= {"options.json": b"{}", "elmo_2x1024.hdf5": b"y", "weights.th": b"y", "checkpoint": b"y"}
    hub.repos["me/elmo"] |= {"model.ckpt-1.index": b"y", "model.ckpt-1.data-00000-of-00001": b"y", "other.pt": b"x"}
    names = {path.name for path in download("me/elmo", tmp_path / "here").iterdir()}
    expected = {"config.json", "manifest.json", "model.safetensors", "vocab.txt", "README.md", "options.json"}
    others = {"elmo_2x1024.hdf5", "weights.th", "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001", "checkpoint"}
    expected |= others
    assert names == expected


def test_a_model_of_lexicons_is_fetched_whole(hub, tmp_path):
    files = {file.name: file.read_bytes() for file in write_model(tmp_path / "model").iterdir()}
    hub.repos["me/many"] = files
    actual = download("me/many", tmp_path / "fetched")
    assert {file.name for file in actual.iterdir()} == files.keys()


def test_an_upload_takes_parts_of_another_model_away_and_leaves_the_rest(hub, model):
    others = {"options.json": b"x", "weights.hdf5": b"x", "softmax.hdf5": b"x"}
    hub.repos["me/elmo"] = {**others, "picture.png": b"x", "README.md": b"old"}
    uploaded(hub, model)
    kept = {"config.json", "manifest.json", "model.safetensors", "vocab.txt", "README.md", "picture.png"}
    assert hub.repos["me/elmo"].keys() == kept
    assert hub.repos["me/elmo"]["README.md"] == b"# card\n"


def test_private_is_private_and_never_a_public_repository_that_is_there(hub, model):
    uploaded(hub, model, private=True)
    assert hub.private == {"me/elmo"}
    uploaded(hub, model, private=True)  # again: it is there, and private
    uploaded(hub, model, "me/open")
    before = dict(hub.repos["me/open"])
    (model / "vocab.txt").write_text("changed")
    with pytest.raises(CheckpointError, match="me/open exists and is public; make it private on the hub first"):
        uploaded(hub, model, "me/open", private=True)
    assert hub.repos["me/open"] == before


def test_a_folder_goes_before_the_hub(hub, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = pathlib.Path("me/elmo")
    folder.mkdir(parents=True)
    assert pretrained_folder("me/elmo") == folder
    newest = folder / "checkpoints" / "step-12"
    newest.mkdir(parents=True)
    assert pretrained_folder("me/elmo") == newest
    assert hub.calls == []


@pytest.mark.parametrize("name", ["me", "me/", "./me", "../me/elmo", "a/b/c", "me/elmo@", "/me/elmo", "me/-x", ""])
def test_what_is_neither_a_folder_nor_a_name_is_said(hub, name):
    if name:
        with pytest.raises(
            CheckpointError,
            match=r"wanted a folder or archive, a name that `elmo-fast models` lists \(mini, small, .*\), or a name on",
        ):
            pretrained_folder(name)
    with pytest.raises(CheckpointError, match="wanted a name that `elmo-fast models` lists"):
        download(name)
    for target in (name, "me/elmo@v1"):
        with pytest.raises(CheckpointError, match="wanted a name on the hub like user/name, without a revision"):
            upload(target, [], "", private=False)
    with pytest.raises(CheckpointError, match="found none"):
        pretrained_folder(pathlib.Path("me/elmo"))  # a path is no name
    assert hub.calls == []


def test_what_the_hub_raises_becomes_one_sentence(hub, model, monkeypatch):
    def fail(*words, **named):
        raise NoAnswer("refused\nby peer")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    monkeypatch.setattr(hub, "create_repo", fail)
    with pytest.raises(CheckpointError, match=r"^me/x: there is no such folder here, and .* \(refused by peer\)$"):
        pretrained_folder("me/x")
    with pytest.raises(CheckpointError, match=r"^me/x: cannot be uploaded \(refused by peer\)$"):
        uploaded(hub, model, "me/x")


def test_without_huggingface_hub_one_sentence_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r'this needs huggingface_hub: pip install "elmo-fast\[hub\]"'):
        pretrained_folder("me/elmo")
    with pytest.raises(CheckpointError, match=r"^me/elmo: cannot be uploaded: this needs huggingface_hub"):
        uploaded(None, model)


def test_the_real_functions_take_our_arguments(hub, model, tmp_path, monkeypatch):
    """Every call that the fake has seen is bound to the signature of the real function of that name."""
    uploaded(hub, model, private=True)
    download("me/elmo@v1", tmp_path / "here")
    monkeypatch.undo()
    real = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    called = {name for name, _, _ in hub.calls}
    assert called == {"snapshot_download", "create_repo", "repo_info", "upload_folder"}
    for name, words, named in hub.calls:
        signature = inspect.signature(getattr(real, name))
        assert not any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
        signature.bind(*words, **named)
