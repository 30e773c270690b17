"""What a trained task needs and does not hold: a biLM or vectors that have changed meanwhile are noticed."""

import dataclasses
import pathlib

import pytest

from elmo_fast.checkpoints import load_checkpoint, save_folder
from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks.run import evaluate_task, predict_task, train_task
from tests.tasks.toy import toy_config
from tests.weights import make_weights


def silent(line):
    """Takes a line and says nothing."""


def test_another_bilm_of_the_same_shape_is_refused(tmp_path):
    """By eval and predict, and by a run that would go on; the old one put back, all is as it was."""
    config = toy_config(tmp_path, epochs=1, elmo="input")
    result = train_task(config, silent)
    make_weights(tmp_path / "bilm", seed=1)
    with pytest.raises(ElmoFastError, match=r"was trained with other model: what '.*bilm' holds has changed since"):
        evaluate_task(config.save_dir, config.test_path)
    with pytest.raises(ElmoFastError, match="or what model or vectors hold"):
        train_task(config, silent)
    make_weights(tmp_path / "bilm")
    assert evaluate_task(config.save_dir, config.test_path) == result.test


@pytest.mark.parametrize("changed", ["cat 1 2\nAnn 2 1\n", "cat 1 2 3\nAnn 2 1 3\n", "Ann 1 2\ncat 2 1\nsees 1 1\n"])
@pytest.mark.parametrize("train_vectors", [False, True])
def test_other_vectors_are_refused(tmp_path, changed, train_vectors):
    """Of the same width, of another one, with other words."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("cat 2 1\nAnn 1 2\n")
    config = toy_config(tmp_path, epochs=1, vectors=str(vectors), train_vectors=train_vectors)
    train_task(config, silent)
    vectors.write_text(changed)
    with pytest.raises(ElmoFastError, match=r"was trained with other vectors: what '.*vectors.txt' holds has changed"):
        evaluate_task(config.save_dir, config.test_path)


def test_a_bilm_that_was_fine_tuned_is_in_the_task(tmp_path):
    """Its folder may hold other weights by then."""
    config = toy_config(tmp_path, epochs=1, elmo="input", fine_tune=True)
    result = train_task(config, silent)
    make_weights(tmp_path / "bilm", seed=1)
    assert evaluate_task(config.save_dir, config.test_path) == result.test


def test_fine_tuning_rounded_weights_warns(tmp_path):
    config = toy_config(tmp_path, epochs=1, elmo="input", fine_tune=True)
    save_folder(tmp_path / "int8", *load_checkpoint(config.model), precision="int8")
    with pytest.warns(UserWarning, match=r"int8: its weights were rounded to int8 when .* starts from the rounded"):
        train_task(dataclasses.replace(config, model=str(tmp_path / "int8")), silent)


def test_predict_never_writes_over_what_it_reads_and_asks_what_a_txt_holds(tmp_path):
    config = toy_config(tmp_path, epochs=1)
    train_task(config, silent)
    before = pathlib.Path(config.test_path).read_text()
    with pytest.raises(ElmoFastError, match="out must be another file than the one that is read"):
        predict_task(config.save_dir, config.test_path, config.test_path)
    assert pathlib.Path(config.test_path).read_text() == before
    text = tmp_path / "text.txt"
    text.write_text("Ann likes the cat\n")
    with pytest.raises(ElmoFastError, match="a sentence a line or a word a line; give format=text or format=columns"):
        predict_task(config.save_dir, text, tmp_path / "out.conll")
    assert predict_task(config.save_dir, text, tmp_path / "out.conll", format="text") == 1
    assert len((tmp_path / "out.conll").read_text().split("\n")) == 6
