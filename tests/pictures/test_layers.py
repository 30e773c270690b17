"""Weights of layers: read from models and results, plotted as they are."""

import json

import numpy as np
import pytest
import torch

from elmo_fast import Elmo
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import layer_weights, read_layer_weights
from elmo_fast.pictures.layers import picture
from tests.pictures.conftest import check_all_text_is_inside


@pytest.fixture
def saved(tmp_path, toy_model):
    """A folder with a model and two mixes."""
    elmo = Elmo(*toy_model, num_output_representations=2)
    with torch.no_grad():
        for number, mix in enumerate(elmo._scalar_mixes):
            for layer, weight in enumerate(mix.scalar_parameters):
                weight.fill_(number * layer * 0.5)
    elmo.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_mixes_of_a_model_are_read_as_their_softmax(saved):
    groups = read_layer_weights(saved)
    assert list(groups) == ["mix 0", "mix 1"]
    np.testing.assert_allclose(groups["mix 0"], [1 / 3] * 3, rtol=1e-6)
    np.testing.assert_allclose(groups["mix 1"], torch.softmax(torch.tensor([0.0, 0.5, 1.0]), 0), rtol=1e-6)


def test_the_results_of_a_task_are_read_from_file_or_folder(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"mix_weights": {"input": [0.5, 0.25, 0.25]}}))
    assert read_layer_weights(tmp_path) == read_layer_weights(tmp_path / "results.json") == {"input": [0.5, 0.25, 0.25]}


def test_a_task_of_one_layer_has_no_weights_to_draw(tmp_path):
    """The file does not say which layer it was: its 1.0 would be plotted as the characters'."""
    (tmp_path / "results.json").write_text(json.dumps({"mix_weights": {"input": [1.0]}}))
    with pytest.raises(ElmoFastError, match="without a mix that learns them"):
        read_layer_weights(tmp_path)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ("{", "not JSON text, or damaged"),
        ("[]", "wanted an object, found a list"),
        ('{"mix_weights": {}}', "contains no layer weights"),
        ('{"mix_weights": {"a": [0.5, 0.6]}}', r"must be 0 or more and sum to 1; got \[0.5, 0.6\]"),
        ('{"mix_weights": {"a": ["x"]}}', r"mix_weights\.a\[0\]: wanted a number, found"),
        ('{"mix_weights": {"a": [1.0], "b": [0.5, 0.5]}}', "equally many layers; got a 1, b 2"),
    ],
)
def test_results_without_weights_are_one_sentence(tmp_path, results, message):
    (tmp_path / "results.json").write_text(results)
    with pytest.raises(ElmoFastError, match=message):
        read_layer_weights(tmp_path)


def test_a_model_without_mixes_is_said(tmp_path, toy_model):
    from pathlib import Path

    with pytest.raises(ElmoFastError, match="contains no layer weights"):
        read_layer_weights(Path(toy_model[0]).parent)


def test_bars_show_the_weights():
    """The heights are the weights, the layers have their names, the start is marked."""
    figure = picture({"a": [0.2, 0.3, 0.5], "b": [0.6, 0.3, 0.1]}, "")
    (axes,) = figure.axes
    assert [bar.get_height() for bar in axes.patches] == [0.2, 0.3, 0.5, 0.6, 0.3, 0.1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["characters", "LSTM 1", "LSTM 2"]
    assert axes.get_lines()[0].get_ydata() == pytest.approx([1 / 3, 1 / 3])


def test_many_mixes_are_a_table_with_every_number(tmp_path):
    groups = {f"task {k} $x$": [k / 10, 1 - k / 10] for k in range(8)}
    (axes,) = picture(groups, "").axes
    numbers = [float(text.get_text()) for text in axes.texts]
    assert numbers == pytest.approx([weight for weights in groups.values() for weight in weights])
    layer_weights(groups, tmp_path / "layers.png")
    assert (tmp_path / "layers.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["upos, input and output: {}", "/home/me/models/" + "a-long-name-" * 12 + ": mix {}"])
@pytest.mark.parametrize("count", [1, 6, 8])
def test_every_name_is_inside_the_picture(name, count):
    """A legend has as many columns as fit, names that are wider than the picture are cut in the middle."""
    figure = picture({name.format(k): [0.3, 0.3, 0.4] for k in range(count)}, "a title " * 15)
    check_all_text_is_inside(figure)
    labels = figure.legends[0].get_texts() if count < 8 else figure.axes[0].get_yticklabels()
    shown = [label.get_text() for label in labels if label.get_text() != "at the start"]
    assert [each[-5:] for each in shown] == [name.format(k)[-5:] for k in range(count)]


def test_nothing_is_written_for_what_cannot_be_drawn(tmp_path):
    for groups, name in (({}, "a.png"), ({"a": [0.5, 0.5]}, "a.docx")):
        with pytest.raises(ElmoFastError):
            layer_weights(groups, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
