"""Reads ELMoForManyLangs' folders; what is damaged is refused in one sentence that names the file."""

import json
import shutil
import zipfile

import pytest
import torch

from elmo_fast.checkpoints import load_checkpoint, model_files, read_config, save_folder, write_bilm_hdf5
from elmo_fast.checkpoints.manylangs import PUBLISHED, PUBLISHED_NAMES, _configuration
from elmo_fast.errors import CheckpointError
from tests.support.manylangs import LETTERS, WORDS, write_model


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("manylangs") / "model")


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "model")


def test_folder_archive_and_own_format_hold_the_same(written, tmp_path):
    state, options = load_checkpoint(written)
    assert (options.lexicon.characters, options.lexicon.words) == (tuple(LETTERS), tuple(WORDS))
    with zipfile.ZipFile(tmp_path / "144.zip", "w") as archive:
        for file in written.iterdir():
            archive.write(file, file.name)
    save_folder(tmp_path / "own", state, options)
    assert "n_characters" not in read_config(tmp_path / "own")["options"]["char_cnn"]
    for place in (tmp_path / "144.zip", tmp_path / "own"):
        again, actual = load_checkpoint(place)
        assert (actual, again.keys()) == (options, state.keys())
        assert all(torch.equal(again[name], tensor) for name, tensor in state.items())
    names = [file.name for file in model_files(written)]
    assert sorted(names) == sorted(file.name for file in written.iterdir())


def test_configuration_is_the_named_the_adjacent_or_the_published_one(folder):
    def named(path):
        (folder / "config.json").write_text(json.dumps({"config_path": path}))
        return _configuration(folder)

    assert named("/elsewhere/cnn.json")[1] == named("C:\\models\\cnn.json")[1] == str(folder / "cnn.json")
    (folder / "configs").mkdir()
    shutil.copy(folder / "cnn.json", folder / "configs/cnn.json")
    assert named("configs/cnn.json")[1] == named("configs\\cnn.json")[1] == str(folder / "configs/cnn.json")
    for name in PUBLISHED_NAMES:
        assert named(f"configs/{name}")[0] is PUBLISHED
    with pytest.raises(CheckpointError, match=r"config\.json: config_path: 'a/b\\n\.json' is missing; put"):
        named("a/b\n.json")


def edit(folder, name, change):
    """Rewrites the tensors or the parts of the configuration that a file holds."""
    if name.endswith(".json"):
        parts = json.loads((folder / name).read_text())
        change(parts)
        (folder / name).write_text(json.dumps(parts))
    else:
        tensors = torch.load(folder / name, weights_only=True)
        change(tensors)
        torch.save(tensors, folder / name)


def lexicon(folder, name, old, new):
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


DAMAGE = {
    "an id twice": (
        lambda f: lexicon(f, "char.dic", "é\t4", "é\t5"),
        r"char\.dic: wanted each id once; 5 is in it 2 times",
    ),
    "a hole": (
        lambda f: lexicon(f, "char.dic", "d\t12", "d\t13"),
        r"char\.dic: wanted the ids 0 to 12 .* 12 is missing",
    ),
    "no id": (
        lambda f: lexicon(f, "word.dic", "abc\t1", "abc"),
        r"word\.dic: line \d+: wanted an entry, a tab and its id",
    ),
    "not UTF-8": (lambda f: (f / "char.dic").write_bytes(b"a\t0\n\xff\t1\n"), r"char\.dic: line 2 is not UTF-8"),
    "no weights": (lambda f: (f / "encoder.pkl").unlink(), r"encoder\.pkl: missing; an ELMoForManyLangs model has"),
    "another shape": (
        lambda f: edit(
            f, "encoder.pkl", lambda t: t.update({"forward_layer_1.state_projection.weight": torch.ones(6, 9)})
        ),
        r"encoder\.pkl: forward_layer_1\.state_projection\.weight: wanted shape \[6, 10\], found \[6, 9\]",
    ),
    "another encoder": (
        lambda f: edit(f, "cnn.json", lambda c: c["encoder"].update(name="gru")),
        r"cnn\.json: encoder\.name: wanted one of elmo, lstm, found 'gru'",
    ),
    "few slots": (
        lambda f: edit(f, "cnn.json", lambda c: c["token_embedder"].update(max_characters_per_token=6)),
        r"cnn\.json: char_cnn\.max_characters_per_token: wanted 7 or more",
    ),
}


@pytest.mark.parametrize("path", ["/{}/outside.json", "../outside.json", "sub/../../outside.json"])
def test_a_configuration_outside_the_folder_is_not_read(folder, path):
    outside = folder.parent / "outside.json"
    (folder / "sub").mkdir()
    (folder / "cnn.json").rename(outside)
    edit(folder, "config.json", lambda c: c.update(config_path=path.format(folder.parent)))
    with pytest.raises(CheckpointError, match=r"config_path: .* is missing; put a file of that name next to"):
        load_checkpoint(folder)
    outside.rename(folder / outside.name)
    load_checkpoint(folder)


def test_an_editors_mark_of_utf8_changes_nothing(folder):
    expected = load_checkpoint(folder)
    for name in ("word.dic", "char.dic"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert load_checkpoint(folder)[1] == expected[1]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_in_one_sentence(damage, folder):
    change, message = DAMAGE[damage]
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def test_formats_of_bytes_refuse_it(written, tmp_path):
    with pytest.raises(
        CheckpointError, match="cannot store this model: its characters and words are those of a lexicon"
    ):
        write_bilm_hdf5(tmp_path / "weights.hdf5", *load_checkpoint(written))
    assert not list(tmp_path.iterdir())
    joined = load_checkpoint(write_model(tmp_path / "model", encoder="lstm"))[1]
    assert "joins both directions" in type(joined)(joined.lstm, n_tokens_vocab=3).why_not_trainable
