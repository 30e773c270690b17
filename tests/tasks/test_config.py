"""The configuration: what is refused, and that all complaints come at once."""

import dataclasses
import json

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.config import TaskConfig, validate


@pytest.fixture
def good(tmp_path):
    """A configuration that passes."""
    (tmp_path / "train.tsv").write_text("a\tb\n")
    path = str(tmp_path / "train.tsv")
    return TaskConfig(train_path=path, dev_path=path, save_dir=str(tmp_path / "run"), model=str(tmp_path))


def test_a_good_one_passes_and_survives_json(good):
    validate(good)
    assert TaskConfig(**json.loads(json.dumps(good.flat()))) == good


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "parse"}, "task must be one of tag, classify; got 'parse'"),
        ({"layer": "last"}, 'layer must be "mix", "top" or the number of a layer'),
        ({"train_share": 0.0}, "train_share must be a finite number above 0 and at most 1; got 0"),
        ({"elmo": "input", "model": None}, "--elmo input needs --model, a pretrained biLM"),
        ({"model": None, "prefix": "a."}, "--prefix does nothing with no --model: give --model, or leave --prefix out"),
        ({"fine_tune": True}, "--fine_tune does nothing with --elmo none"),
        (
            {"fine_tune": True, "elmo": "input", "precision": "int8"},
            "--fine_tune needs gradients, which int8 does not have",
        ),
        ({"word_dim": 0}, "the BiLSTM has no features"),
        ({"task": "classify", "crf": True}, "--crf does nothing with --task classify"),
        ({"dev_path": ""}, "dev_path is missing"),
        ({"test_path": "nowhere.conllu"}, "--test_path: there is no file 'nowhere.conllu'"),
        ({"vectors": "nowhere.txt"}, "--vectors: there is no file 'nowhere.txt'"),
        ({"threads": 0}, "threads must be a whole number above 0 or null"),
        ({"pooling": "max"}, "--pooling does nothing with --task tag: give --task classify, or leave --pooling out"),
        ({"vectors": __file__, "word_dim": 50}, "--word_dim does nothing with --vectors: leave --vectors out"),
        ({"elmo": "input", "layer": 0, "mix_l2": 0.5}, "--mix_l2 does nothing with one --layer: give --layer mix"),
    ],
)
def test_each_fault_is_named(good, changes, words):
    with pytest.raises(ElmoFastError, match=words):
        validate(dataclasses.replace(good, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"vectors": __file__, "word_dim": 0},
        {"vectors": __file__, "train_vectors": True},
        {"task": "classify", "pooling": "max"},
        {"elmo": "input", "layer": 0, "mix_l2": 0.0},
    ],
)
def test_what_has_an_effect_or_asks_for_nothing_passes(good, changes):
    validate(dataclasses.replace(good, model="mini", **changes))


def test_all_complaints_come_at_once(good):
    with pytest.raises(ElmoFastError, match=r"task must be .*; batch_size must be .*; train_path is missing"):
        validate(dataclasses.replace(good, task="x", batch_size=0, train_path=""))
