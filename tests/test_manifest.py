"""Files that belong together: readers find all of one save, and hear of any byte that has changed since."""

import json
import os
import shutil
import signal

import pytest
import torch

from elmo_fast.checkpoints import load_folder, read_bilm_hdf5, read_config, read_options, save_folder
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.manifest import MANIFEST, check_written, settle, writing_together
from tests.weights import make_weights

SMALL = {"cell": 6, "proj": 4, "filters": ((1, 2),), "layers": 1, "n_highway": 1}


def model(folder, seed, **changes):
    options_file, weight_file = make_weights(folder / f"pair{seed}", seed=seed, **SMALL, **changes)
    options = read_options(options_file)
    return read_bilm_hdf5(weight_file, options), options


@pytest.fixture
def saved(tmp_path):
    """A folder of a model, with a user's own files in it."""
    save_folder(tmp_path / "own", *model(tmp_path, 0))
    (tmp_path / "own" / "README.md").write_text("mine")
    return tmp_path / "own"


def same(actual, expected):
    (state, options), (other, other_options) = actual, expected
    return options == other_options and all(torch.equal(state[name], other[name]) for name in other)


def killed_at(step, action):
    """Runs `action` in a process that is killed before its step-th call of the system that changes a folder;
    whether it got there."""
    child = os.fork()
    if child == 0:
        try:
            left = [step]

            def watched(call):
                def counted(*words, **named):
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return call(*words, **named)

                return counted

            for name in ("rename", "replace", "mkdir", "rmdir", "unlink"):
                setattr(os, name, watched(getattr(os, name)))
            action()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("before", ["a model", "a model of an older version", "nothing"])
def test_a_killed_save_leaves_the_old_model_or_the_new_one(tmp_path, before):
    """Each place between two calls that change a folder; the next save then leaves nothing else in it."""
    old, new, later = model(tmp_path, 0), model(tmp_path, 1, cell_clip=1.5), model(tmp_path, 2, skip=False)
    folder, actual = tmp_path / "own", []
    for step in range(1, 100):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "vocab.txt").write_text("mine")
        if before != "nothing":
            save_folder(folder, *old)
        if before == "a model of an older version":
            (folder / MANIFEST).unlink()
        if not killed_at(step, lambda: save_folder(folder, *new)):
            break
        settle(folder)
        if not (folder / MANIFEST).exists():
            assert (folder / "config.json").exists() == (folder / "model.safetensors").exists() == (before != "nothing")
            actual.append("old")
        else:
            actual.append("new" if same(load_folder(folder), new) else "old")
            assert actual[-1] == "new" or same(load_folder(folder), old)
        save_folder(folder, *later)
        assert same(load_folder(folder), later)
        assert sorted(os.listdir(folder)) == ["config.json", MANIFEST, "model.safetensors", "vocab.txt"]
    assert actual == sorted(actual, reverse=True)
    assert actual.count("old") >= 3
    assert actual.count("new") >= 3


def test_two_saves_at_once_leave_one_of_them(tmp_path):
    """The second begins where the first has put its files and not yet moved them up."""
    first, second = model(tmp_path, 0), model(tmp_path, 1, cell_clip=1.5)
    for step in range(1, 100):
        shutil.rmtree(tmp_path / "own", ignore_errors=True)
        if not killed_at(step, lambda: save_folder(tmp_path / "own", *first)):
            break
        save_folder(tmp_path / "own", *second)
        assert same(load_folder(tmp_path / "own"), second)
    assert step > 5


def test_a_half_moved_save_in_a_folder_that_cannot_be_written_is_told(saved, monkeypatch):
    (saved / ".new-files").mkdir()
    os.rename(saved / "config.json", saved / ".new-files" / "config.json")

    def refused(*paths):
        raise PermissionError(13, "Permission denied", str(paths[0]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        with pytest.raises(CheckpointError, match=r"own: a save was interrupted.*\.new-files cannot be moved up"):
            load_folder(saved)
    load_folder(saved)
    assert not (saved / ".new-files").exists()


@pytest.mark.parametrize(("key", "value"), [("cell_clip", 2.5), ("use_skip_connections", False), ("cell_clip", None)])
def test_a_changed_setting_is_refused_and_the_message_says_how_to_keep_it(saved, key, value):
    config = json.loads((saved / "config.json").read_text())
    config["options"]["lstm"][key] = value
    (saved / "config.json").write_text(json.dumps(config))
    sentence = r"config\.json: damaged, or changed after it was written: .*delete \S*manifest\.json"
    for read in (load_folder, read_config, lambda folder: read_options(folder / "config.json")):
        with pytest.raises(CheckpointError, match=sentence):
            read(saved)
    (saved / MANIFEST).unlink()
    with pytest.warns(
        UserWarning, match=r"own has no manifest\.json .*whether config\.json, model\.safetensors are as written"
    ) as record:
        _, options = load_folder(saved)
    assert len(record) == 1
    assert getattr(options.lstm, key) == value


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", MANIFEST])
@pytest.mark.parametrize("harm", ["flip", "cut", "replace", "remove"])
def test_damage_anywhere_is_an_error_or_changes_nothing(saved, name, harm):
    expected, path = load_folder(saved), saved / name
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 7):
        if harm == "flip":
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        elif harm == "cut":
            path.write_bytes(whole[:place])
        elif harm == "replace":
            path.write_bytes(b"[" * place)
        else:
            path.unlink(missing_ok=True)
        if harm == "remove" and name == MANIFEST:
            with pytest.warns(UserWarning, match="could not be checked"):
                assert same(load_folder(saved), expected)
        else:
            with pytest.raises(CheckpointError, match=r"(config|model|manifest)\.(json|safetensors)"):
                load_folder(saved)


def test_what_users_put_beside_is_theirs(saved):
    (saved / "README.md").write_text("changed")
    (saved / "vocab.txt").write_text("<S>\n")
    load_folder(saved)
    assert check_written(saved, ["config.json", "model.safetensors"])
    assert not check_written(saved.parent, ["config.json"])
    with pytest.raises(CheckpointError, match=r"manifest\.json: does not list vocab\.txt"):
        check_written(saved, ["vocab.txt"])


def test_a_folder_in_a_files_place_is_refused_before_anything_changes(saved):
    expected = load_folder(saved)
    (saved / "new").mkdir()

    def write():
        with writing_together(saved) as new:
            (new / "config.json").write_text("{}")
            (new / "new").write_text("{}")

    with pytest.raises(ElmoFastError, match="it is a folder"):
        write()
    assert same(load_folder(saved), expected)


def test_all_files_and_folders_have_the_usual_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        save_folder(tmp_path / "own", *model(tmp_path, 0))
    finally:
        os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "own").iterdir()} == {0o640}


def test_links_in_a_folder_that_is_loaded_move_and_remove_nothing(tmp_path, saved):
    """One in the place of an interrupted save's folder would move all files of another folder into the model."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in (".lock", "letter.txt", "model.safetensors"):
        (foreign / name).write_text(name)
    (saved / ".new-files").symlink_to(foreign)
    with pytest.raises(CheckpointError, match=r"\.new-files: is a link"):
        load_folder(saved)
    (saved / ".new-files").unlink()
    (saved.parent / f".{saved.name}.x.partial").symlink_to(foreign)
    (saved / ".manifest.json.x.partial").symlink_to(foreign)
    save_folder(saved, *load_folder(saved))
    assert sorted(os.listdir(foreign)) == [".lock", "letter.txt", "model.safetensors"]
    load_folder(saved)
