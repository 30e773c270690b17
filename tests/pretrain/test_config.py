"""Configuration: presets, unknown keys, and all complaints at once."""

import dataclasses

import pytest

from elmo_fast._docstrings import docstrings
from elmo_fast.cli._parser import SHARED
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import (
    PRESET_FOLDER,
    SECTIONS,
    PretrainConfig,
    complaints,
    load_preset,
    preset_file,
    presets,
    validate,
)


def good(tmp_path, name="tiny") -> PretrainConfig:
    (tmp_path / "train-0").write_text("a b\n")
    config = load_preset(name)
    config.data.train_prefix, config.run.save_dir = str(tmp_path / "train-*"), str(tmp_path / "out")
    return config


@pytest.mark.parametrize("name", ["tiny", "small", "medium", "original", "original_h200"])
def test_every_preset_can_be_run(tmp_path, name):
    assert complaints(good(tmp_path, name)) == []
    assert {path.stem for path in PRESET_FOLDER.iterdir()} == set(presets()) >= {name}


def test_field_names_are_unique_across_sections_so_that_flags_can_be_flat():
    names = [field.name for section in SECTIONS.values() for field in dataclasses.fields(section)]
    assert len(names) == len(set(names))
    helped = {name for section in SECTIONS.values() for name in docstrings(section)}
    shared = {"prefix", "backend", "threads", "format_in", "column", "split"}
    assert set(names) - helped == shared < set(SHARED)


def test_every_complaint_comes_at_once_with_name_wanted_and_given(tmp_path):
    config = good(tmp_path)
    config.model.filters = [[60, 5]]
    config.model.dropout = 1.0
    config.model.projection_dim = 1000
    config.optimizer.batch_size = 0
    config.optimizer.learning_rate = float("nan")
    config.run.precision = "float8"
    config.run.save_dir = ""
    config.data.heldout_prefix = str(tmp_path / "absent-*")
    with pytest.raises(ElmoFastError) as raised:
        validate(config)
    message = str(raised.value)
    for piece in (
        "filters", "[60, 5]", "dropout", "projection_dim", "batch_size must be a whole number above 0; got 0",
        "learning_rate", "nan", "precision must be one of float32, bfloat16, float16, tf32; got 'float8'", "save_dir",
        "heldout_prefix", "absent-*",
    ):  # fmt: skip
        assert piece in message
    assert len(complaints(config)) == 8


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"filters": None}, "number above 0]; got none"),  # a line `filters:` of YAML
        ({"loss": "full_softmax", "negatives": 5.0}, "negatives goes with loss: negative_sampling; got loss: full"),
        ({"input": "vectors"}, "vectors_file must name the vectors"),
        ({"input": "words", "vectors_file": __file__}, "goes with it alone; got vectors_file"),
        ({"input": "vectors", "vectors_file": "absent"}, "vectors_file must exist"),
        ({"prefix": "a."}, "prefix chooses one of the ELMos of init_from; got 'a.' without init_from"),
        ({"weight_decay": 0.1}, "weight_decay is of adamw; with adagrad it must be 0; got 0.1"),
        ({"train_bilm": False}, "train_bilm: false keeps the biLM of init_from, which must name a model; got nothing"),
        ({"train_vectors": False}, "train_vectors: false goes with input: vectors"),
        ({"input": "vectors", "vectors_file": __file__, "init_from": "x"}, "init_from brings one; give input: words"),
        ({"keep_best": True}, "keep_best compares perplexities of heldout_prefix"),
    ],
)
def test_each_fault_is_named(tmp_path, changes, expected):
    (actual,) = complaints(PretrainConfig.from_flat(good(tmp_path).flat() | changes))
    assert expected in actual


def test_unknown_keys_and_presets_are_named():
    with pytest.raises(ElmoFastError, match="unknown configuration keys: dimm"):
        PretrainConfig.from_flat({"dimm": 3})
    with pytest.raises(ElmoFastError, match="tiny, mini, small, medium, original, original_h200; got 'huge'"):
        preset_file("huge")
