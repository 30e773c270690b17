"""google/elmo's outputs under their names: each is what the module's page says, for a model of elmo_fast."""

import numpy as np
import pytest
import torch

from elmo_fast.compat.tensorflow_hub import Module
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.support.bilm_numpy import BilmNumpy
from tests.support.weights import make_weights

SENTENCES = ["the cat is on the mat", " dogs  are", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    make_weights(tmp_path_factory.mktemp("hub"))
    return tmp_path_factory.getbasetemp() / "hub0"


def test_the_outputs_are_the_layers_their_mix_and_its_mean(folder):
    """Against bilm-tf's forward pass in float64, each sentence from the zero state, whatever was run before."""
    hub = Module(folder)
    hub(["something else"])
    with torch.no_grad():
        hub.mix.gamma.fill_(1.5)
        hub.mix.scalar_parameters[0].fill_(0.7)
    actual = hub(SENTENCES, as_dict=True)
    assert {name: tuple(each.shape) for name, each in actual.items()} == {
        "word_emb": (3, 6, 8),
        "lstm_outputs1": (3, 6, 16),
        "lstm_outputs2": (3, 6, 16),
        "elmo": (3, 6, 16),
        "default": (3, 16),
    }
    weights = np.exp([0.7, 0, 0]) / np.exp([0.7, 0, 0]).sum()
    for row, text in enumerate(SENTENCES[:2]):
        truth = BilmNumpy(folder / "options.json", folder / "weights.hdf5")
        layers = truth.embed([text.split()])[0]
        mixed = 1.5 * np.einsum("l,ltd->td", weights, layers)
        n = layers.shape[1]
        expected = {"word_emb": layers[0][:, :8], "lstm_outputs1": layers[1], "lstm_outputs2": layers[2], "elmo": mixed}
        for name, values in expected.items():
            np.testing.assert_allclose(actual[name][row, :n].detach(), values, atol=2e-5, err_msg=name)
            assert not actual[name][row, n:].any()
        np.testing.assert_allclose(actual["default"][row].detach(), mixed.mean(0), atol=2e-5)
    assert not actual["default"][2].any()
    assert torch.equal(hub(SENTENCES), actual["default"])


def test_both_signatures_and_both_ways_to_call_agree(folder):
    hub = Module(folder)
    tokens = [text.split() + [""] * (6 - len(text.split())) for text in SENTENCES]
    expected = hub(SENTENCES, signature="default", as_dict=True)
    for actual in (
        hub(inputs={"tokens": tokens, "sequence_len": [6, 2, 0]}, signature="tokens", as_dict=True),
        hub.signatures["tokens"](tokens=np.array(tokens).astype(bytes), sequence_len=torch.tensor([6, 2, 0])),
        hub.signatures["default"](SENTENCES),
    ):
        assert actual.keys() == expected.keys()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_only_the_four_numbers_of_the_mix_are_trained(folder):
    hub = Module(folder, trainable=True)
    hub(SENTENCES).square().sum().backward()
    trained = [parameter for parameter in hub.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == 4
    assert all(parameter.grad.any() for parameter in trained)
    assert not any(parameter.requires_grad for parameter in Module(folder).parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("the cat",), "inputs must be a list of strings; got the string 'the cat'"),
        ((["the"], "words"), "signature must be one of default, tokens; got 'words'"),
        ((["the"], "tokens"), "inputs must be a dictionary of tokens and sequence_len"),
        (({"tokens": [["a"]], "sequence_len": [2]}, "tokens"), r"sequence_len must be a number from 0 .*; got \[2\]"),
        (({"tokens": [["a"]], "sequence_len": 1}, "tokens"), "for each of 1 sentences; got 1"),
        (({"tokens": [[1]], "sequence_len": [1]}, "tokens"), r"tokens\[0\]\[0\] must be a word \(a string\); got 1"),
    ],
)
def test_other_inputs_are_refused(folder, arguments, message):
    with pytest.raises(ElmoFastError, match=message):
        Module(folder)(*arguments)


def test_the_advice_about_files_can_be_followed(folder):
    """Module takes a folder alone."""
    with pytest.raises(CheckpointError, match="found a file; give the folder of its files"):
        Module(folder / "weights.hdf5")
