"""Files that belong together: readers find all of one save, and hear of any byte that has changed since."""

import errno
import json
import os
import shutil
import signal

import pytest
import torch

from elmo_fast._io.atomic_folder import MANIFEST, check_files, finish_folder, has_files, read_folder, write_folder
from elmo_fast.checkpoints import (
    load_checkpoint,
    load_folder,
    read_bilm_hdf5,
    read_config,
    read_options,
    save_folder,
)
from elmo_fast.corpus import is_prepared
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.support.weights import make_weights

# Calls of the system that change a folder.
CHANGING = ("rename", "replace", "link", "mkdir", "rmdir", "unlink")
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


def snapshot(folder):
    return {path: path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


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

            for name in CHANGING:
                setattr(os, name, watched(getattr(os, name)))
            action()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("before", ["a model", "a model without a manifest", "nothing"])
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
        if before == "a model without a manifest":
            (folder / MANIFEST).unlink()
        if not killed_at(step, lambda: save_folder(folder, *new)):
            break
        left = snapshot(folder)
        if not has_files(folder, MANIFEST):
            assert before != "a model"
            assert (folder / "config.json").exists() == (folder / "model.safetensors").exists() == (before != "nothing")
            if before != "nothing":
                with pytest.warns(UserWarning, match="has no manifest"):
                    assert same(load_folder(folder), old)
            actual.append("old")
        else:
            actual.append("new" if same(load_folder(folder), new) else "old")
            assert actual[-1] == "new" or same(load_folder(folder), old)
        assert snapshot(folder) == left, "a reader writes nothing"
        save_folder(folder, *later)
        assert same(load_folder(folder), later)
        assert sorted(os.listdir(folder)) == ["config.json", MANIFEST, "model.safetensors", "vocab.txt"]
    assert actual == sorted(actual, reverse=True)
    assert actual.count("old") >= 3
    assert actual.count("new") >= 3


def test_a_folder_appears_by_one_rename_and_is_complete_then(tmp_path):
    """Killed before it, a writer leaves nothing under the folder's name."""
    expected, actual = model(tmp_path, 0), []
    for step in range(1, 100):
        for left in (tmp_path / "own", *tmp_path.glob(".own.*")):
            shutil.rmtree(left, ignore_errors=True)
        if not killed_at(step, lambda: save_folder(tmp_path / "own", *expected)):
            break
        actual.append((tmp_path / "own").exists())
        if actual[-1]:
            assert sorted(os.listdir(tmp_path / "own")) == ["config.json", MANIFEST, "model.safetensors"]
            assert same(load_folder(tmp_path / "own"), expected)
    assert actual == sorted(actual)
    assert len(set(actual)) == 2


def test_a_killed_save_in_a_folder_that_cannot_be_written_is_read(saved, monkeypatch):
    expected = load_folder(saved)
    shutil.copytree(saved, saved / ".new-files")
    for name in ("config.json", "model.safetensors"):
        (saved / name).unlink()  # `expected` maps it
        (saved / name).write_text("of another save")

    def refused(*paths, **named):
        raise PermissionError(13, "Permission denied", str(paths[0]))

    for name in CHANGING:
        monkeypatch.setattr(os, name, refused)
    assert same(load_folder(saved), expected)
    assert same(load_checkpoint(saved), expected)
    assert read_config(saved)["options"]
    assert read_options(saved / "config.json") == expected[1]


def test_saves_that_end_with_the_same_files_are_noticed(tmp_path):
    """A reader that met one of two saves reads again, though the manifest says what it said before."""
    models = [model(tmp_path, 0), model(tmp_path, 1)]
    save_folder(tmp_path / "own", *models[0])
    before, calls = (tmp_path / "own" / MANIFEST).read_bytes(), []

    def read(folder):
        calls.append(folder)
        if len(calls) == 1:
            save_folder(tmp_path / "own", *models[1])
            save_folder(tmp_path / "own", *models[0])
            raise ValueError("met the files of the first save")
        return "read"

    assert read_folder(tmp_path / "own", None, read) == "read"
    assert (tmp_path / "own" / MANIFEST).read_bytes() == before


def test_a_manifest_that_is_named_before_its_files_is_read_again(tmp_path, monkeypatch):
    """A reader that looked for new files just before they came, and failed when all had their names, reads again."""
    own, new = tmp_path / "own", tmp_path / "own" / ".new-files"
    save_folder(own, *model(tmp_path, 0))
    save_folder(tmp_path / "other", *model(tmp_path, 1))
    shutil.copytree(tmp_path / "other", new)
    (own / MANIFEST).unlink()
    os.link(new / MANIFEST, own / MANIFEST)
    looks = []

    def looked(call):
        def look(path, *words, **named):
            if os.fspath(path) == os.fspath(new):
                looks.append(path)
                if len(looks) <= 2:  # as a link, and as a folder
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory")
                if len(looks) == 3:
                    finish_folder(own)
            return call(path, *words, **named)

        return look

    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, looked(getattr(os, name)))
    expected = (tmp_path / "other" / "model.safetensors").read_bytes()
    assert read_folder(own, None, lambda folder: (folder / "model.safetensors").read_bytes()) == expected


def test_a_reader_during_writes_gets_one_of_the_models(tmp_path):
    """And never a file of each, nor an error."""
    models = [model(tmp_path, 0), model(tmp_path, 1, cell_clip=1.5)]
    save_folder(tmp_path / "own", *models[0])
    child = os.fork()
    if child == 0:
        try:
            for turn in range(1, 60):
                save_folder(tmp_path / "own", *models[turn % 2])
        finally:
            os._exit(0)
    actual = set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        read = load_folder(tmp_path / "own")
        actual.add(next(number for number, expected in enumerate(models) if same(read, expected)))
    assert actual == {0, 1}


@pytest.mark.parametrize("call", ["replace", "link", "fsync"])
def test_what_fails_after_readers_see_the_new_files_is_a_warning(saved, tmp_path, monkeypatch, call):
    """Such as a disk that is full for a moment: the save has taken effect, and the next one completes it."""
    plain, new, failed = getattr(os, call), model(tmp_path, 1), []

    def once(*arguments, **named):
        if (saved / ".new-files").exists() and len(failed) < 3:
            failed.append(call)
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(*arguments, **named)

    monkeypatch.setattr(os, call, once)
    if call == "link":  # of which copies take the place
        save_folder(saved, *new)
    else:
        with pytest.warns(UserWarning, match="own is saved, but .*No space left"):
            save_folder(saved, *new)
        failed += failed * 3
    assert failed
    assert same(load_folder(saved), new)
    save_folder(saved, *(last := model(tmp_path, 2)))
    assert same(load_folder(saved), last)
    assert sorted(os.listdir(saved)) == ["README.md", "config.json", MANIFEST, "model.safetensors"]


def test_a_pipe_in_place_of_a_file_is_refused_and_not_read(saved, tmp_path):
    """Reading it would wait for ever: the manifest of a model, and what says that a folder is a corpus."""
    (saved / MANIFEST).unlink()
    os.mkfifo(saved / MANIFEST)
    with pytest.raises(CheckpointError, match="wanted a regular file, found a pipe"):
        load_folder(saved)
    os.mkfifo(tmp_path / "meta.json")
    assert not is_prepared(tmp_path)


def test_many_writers_at_once_leave_one_of_their_models(tmp_path):
    models = [model(tmp_path, seed, cell_clip=1.0 + seed) for seed in range(3)]
    children = []
    for expected in models:
        children.append(os.fork())
        if children[-1] == 0:
            try:
                for _ in range(10):
                    save_folder(tmp_path / "own", *expected)
                os._exit(0)
            finally:
                os._exit(1)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert any(same(load_folder(tmp_path / "own"), expected) for expected in models)
    assert sorted(os.listdir(tmp_path / "own")) == ["config.json", MANIFEST, "model.safetensors"]
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith("pair")) == ["own"]


def test_a_folder_that_is_there_stays_unless_it_is_replaced(saved):
    before = load_folder(saved)
    with write_folder(saved, replace=False) as new:
        (new / "config.json").write_text("{}")
    assert same(load_folder(saved), before)
    with write_folder(saved.parent / "empty", replace=False) as new:
        (new / "a").write_text("1")
    (saved.parent / "empty 2").mkdir()
    with write_folder(saved.parent / "empty 2", replace=False) as new:
        (new / "a").write_text("1")
    assert all((saved.parent / name / "a").read_text() == "1" for name in ("empty", "empty 2"))


def test_a_changed_setting_is_refused_and_the_message_says_how_to_keep_it(saved):
    config = json.loads((saved / "config.json").read_text())
    config["options"]["lstm"]["cell_clip"] = 2.5
    (saved / "config.json").write_text(json.dumps(config))
    sentence = r"config\.json: damaged, or changed after it was written: .*delete \S*manifest\.json"
    for read in (load_folder, read_config, lambda folder: read_options(folder / "config.json")):
        with pytest.raises(CheckpointError, match=sentence):
            read(saved)
    (saved / MANIFEST).unlink()
    with pytest.warns(
        UserWarning, match=r"own has no manifest\.json: whether config\.json, model\.safetensors changed"
    ) as record:
        _, options = load_folder(saved)
    assert len(record) == 1
    assert options.lstm.cell_clip == 2.5


def test_what_users_put_beside_is_theirs(saved):
    (saved / "README.md").write_text("changed")
    (saved / "vocab.txt").write_text("<S>\n")
    load_folder(saved)
    check_files(saved, ["config.json", "model.safetensors"])
    with pytest.raises(CheckpointError, match=r"manifest\.json: does not list vocab\.txt"):
        check_files(saved, ["vocab.txt"])


def test_a_folder_in_a_files_place_is_refused_before_anything_changes(saved):
    expected = load_folder(saved)
    (saved / "new").mkdir()

    def write():
        with write_folder(saved) as new:
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
    (saved.parent / f".{saved.name}.x7_3kq2a.partial").symlink_to(foreign)
    (saved / ".manifest.json.x7_3kq2a.partial").symlink_to(foreign)
    save_folder(saved, *load_folder(saved))
    assert sorted(os.listdir(foreign)) == [".lock", "letter.txt", "model.safetensors"]
    load_folder(saved)
