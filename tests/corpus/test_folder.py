"""Prepared folders that are not what they were: each file is named, before it is read and while it is."""

import json
import os
import shutil

import pytest

from elmo_fast._io.atomic_folder import write_manifest
from elmo_fast.corpus import open_corpus, prepare, streams
from elmo_fast.corpus.streams import Stream
from elmo_fast.errors import ElmoFastError

TEXT = [[f"w{i * j % 7}" for j in range(i % 5 + 1)] for i in range(40)]
FILES = ["vocab.txt", "types.npy", "ids-00001.npy"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text("\n".join(map(" ".join, TEXT)))
    prepare(str(folder / "text.txt"), folder / "out", processes=1, shard_tokens=60)
    return folder / "out"


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of a prepared folder of several shards, to be spoilt."""
    shutil.copytree(whole, tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_changed_shorter_or_missing_is_named(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-3] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ElmoFastError, match=rf"{name}: damaged, or changed after .*--overwrite"):
        open_corpus(folder)
    os.truncate(folder / name, 20)
    with pytest.raises(ElmoFastError, match=rf"{name}: damaged, .* found 20 bytes; copy the folder"):
        open_corpus(folder)
    (folder / name).unlink()
    with pytest.raises(ElmoFastError, match=rf"{name}: cannot be read"):
        open_corpus(folder)


def test_meta_json_of_another_version(folder):
    """Whatever the manifest says."""
    path = folder / "meta.json"
    text = path.read_text()
    for version in ("1", '"2"', "null"):
        path.write_text(text.replace('"version": 2', f'"version": {version}'))
        write_manifest(folder)
        with pytest.raises(ElmoFastError, match="of a prepared corpus, but this elmo_fast reads version 2; prepare"):
            open_corpus(folder)


def test_a_corpus_without_a_manifest_or_with_one_that_is_damaged_is_named(folder):
    (folder / "manifest.json").write_text("{")
    with pytest.raises(ElmoFastError, match=r"manifest\.json: not JSON"):
        open_corpus(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ElmoFastError, match=r"manifest\.json is missing; copy the folder"):
        open_corpus(folder)


def test_what_is_not_a_prepared_folder(tmp_path):
    (tmp_path / "file").write_text("a")
    (tmp_path / "meta.json").write_text(json.dumps({"format": "another"}))
    for path in (tmp_path, tmp_path / "file", tmp_path / "absent"):
        with pytest.raises(ElmoFastError, match="is not a prepared corpus"):
            open_corpus(path)


def cut(path):
    os.truncate(path, os.path.getsize(path) - 4)


def swap(path):
    shutil.copy(path, f"{path}.new")
    os.replace(f"{path}.new", path)


def rewrite(path):
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [cut, swap, rewrite, os.remove])
@pytest.mark.parametrize("name", ["ids-00001.npy", "starts-00000.npy"])
def test_a_file_that_changes_while_it_is_read_from_is_named(folder, monkeypatch, name, change):
    """To read on past a cut would end the process with SIGBUS: the next slab is refused instead."""
    monkeypatch.setattr(streams, "SLAB", 20)
    stream = Stream(open_corpus(folder), 2, 3, seed=0)
    stream.batch(0, 0)
    change(folder / name)
    with pytest.raises(ElmoFastError, match=rf"{name} was replaced, changed or removed while in use"):
        stream.batch(0, stream.steps_per_epoch - 1)
