"""A random model in a folder, and what the biLM says of a sentence by itself."""

import numpy as np
import pytest

from elmo_fast.text import Vocabulary
from tests.support.bilm_numpy import BilmNumpy
from tests.support.weights import make_weights


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder that holds a model of two layers, 2D = 16."""
    folder = tmp_path_factory.mktemp("model")
    make_weights(folder)
    return folder


@pytest.fixture
def word_model(tmp_path):
    """A folder that holds a model of word ids, and its vocab.txt."""
    folder, words = tmp_path / "words", ["<S>", "</S>", "<UNK>", "I", "like", "Berlin", "wind"]
    make_weights(folder, words=len(words))
    Vocabulary(words).write(folder / "vocab.txt")
    return folder


@pytest.fixture(scope="session")
def truth(model):
    """truth(words, layers="average"): [T, W] float64 of one sentence, from the numpy judge."""

    def vectors(words, layers="average"):
        actual = BilmNumpy(model / "options.json", model / "weights.hdf5").embed([words])[0]
        if layers == "average":
            return actual.mean(axis=0)
        return np.concatenate(actual, axis=-1) if layers == "all" else actual[-1]

    return vectors
