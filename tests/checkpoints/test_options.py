"""options.json <-> ElmoOptions: published files read, every complaint is made at once, damage never passes."""

import copy
import dataclasses
import json

import pytest

from elmo_fast.checkpoints import ElmoOptions, LstmOptions, read_options, write_options
from elmo_fast.errors import CheckpointError

# The options.json published with elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5.
PUBLISHED = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "embedding": {"dim": 16},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}
# Options that bilm-tf's training writes next to its checkpoints.
TRAINING = {
    **PUBLISHED,
    "char_cnn": {**PUBLISHED["char_cnn"], "n_characters": 261},
    "bidirectional": True,
    "dropout": 0.1,
    "all_clip_norm_val": 10.0,
    "n_epochs": 10,
    "n_train_tokens": 768648884,
    "batch_size": 128,
    "n_tokens_vocab": 793471,
    "unroll_steps": 20,
    "n_negative_samples_batch": 8192,
}


@pytest.mark.parametrize("values", [PUBLISHED, TRAINING], ids=["published", "training"])
def test_bilm_tf_options_read_and_write_back_equal(values, tmp_path):
    (tmp_path / "options.json").write_text(json.dumps(values))
    options = read_options(tmp_path / "options.json")
    assert options.lstm == LstmOptions(4096, 512, 2, 3, 3, True)
    assert (options.char_cnn.n_filters, options.char_cnn.n_highway, options.char_cnn.embedding_dim) == (2048, 2, 16)
    write_options(tmp_path / "again.json", options)
    written = json.loads((tmp_path / "again.json").read_text())
    assert {key: written[key] for key in values} == values
    assert read_options(tmp_path / "again.json") == options
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.json", "options.json"]


def test_training_options_become_options_for_use():
    options = ElmoOptions.from_dict(TRAINING)
    assert options.char_cnn.n_characters == 261
    assert options.with_n_characters(262).char_cnn == ElmoOptions.from_dict(PUBLISHED).char_cnn


def test_absent_keys_take_bilm_tf_defaults():
    options = ElmoOptions.from_dict({"lstm": {"dim": 8, "projection_dim": 4}, "char_cnn": {"filters": [[1, 4]]}})
    assert options.lstm == LstmOptions(8, 4, n_layers=1, cell_clip=None, proj_clip=None, use_skip_connections=False)
    assert options.char_cnn.n_highway == 0
    assert options.bidirectional
    assert options.n_tokens_vocab is None
    assert ElmoOptions.from_dict({**PUBLISHED, "lstm": {**PUBLISHED["lstm"], "proj_clip": None}}).lstm.proj_clip is None


def test_a_model_of_word_ids_is_recognised():
    for absent in ({}, {"char_cnn": None}):
        options = ElmoOptions.from_dict({"lstm": {"dim": 8, "projection_dim": 4}, "n_tokens_vocab": 100, **absent})
        assert options.char_cnn is None
        assert options.with_n_characters(261) == options
        assert ElmoOptions.from_dict(options.to_dict()) == options


def test_every_complaint_is_made_at_once():
    values = copy.deepcopy(PUBLISHED)
    del values["lstm"]["dim"]
    values["lstm"]["n_layers"] = True
    values["lstm"]["cell_clip"] = "3"
    values["char_cnn"]["n_characters"] = 60
    values["char_cnn"]["filters"][1] = [2]
    values["char_cnn"]["n_highways"] = 2
    values["my_note"] = {"a": 1}
    with pytest.raises(CheckpointError) as error:
        ElmoOptions.from_dict(values, "folder/options.json")
    message = str(error.value)
    assert message.startswith("folder/options.json: ")
    for part in (
        "lstm.dim: wanted a whole number above 0, found nothing",
        "lstm.n_layers: wanted a whole number from 1 to 1000, found true",
        'lstm.cell_clip: wanted a finite number above 0 or null, found "3"',
        "char_cnn.n_characters: wanted one of 261, 262, found 60",
        "char_cnn.filters: wanted a list of pairs [width, number]",
        "char_cnn.n_highways: unknown key; did you mean char_cnn.n_highway?",
        "my_note: unknown key; known: all_clip_norm_val, ",
    ):
        assert part in message, part
    assert "\n" not in message


def test_what_is_no_file_of_options_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_options(tmp_path)
    (tmp_path / "file").write_text("[1]")
    with pytest.raises(CheckpointError, match="file: wanted an object, found a list"):
        read_options(tmp_path / "file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_options(tmp_path / "file" / "options.json", ElmoOptions.from_dict(PUBLISHED))


def test_options_made_in_code_are_checked_too():
    with pytest.raises(CheckpointError, match=r"dim: wanted a whole number.*projection_dim"):
        LstmOptions(dim=0, projection_dim=-1)
    with pytest.raises(CheckpointError, match="dropout"):
        dataclasses.replace(ElmoOptions.from_dict(PUBLISHED), dropout=2)
