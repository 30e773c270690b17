"""TokenVectors: right vectors whatever the batch, the order, the length or the state; in bounded memory."""

import os

import numpy as np
import pytest
import torch

from elmo_fast import BiLM
from elmo_fast.embed.token_vectors import TokenVectors, shared_bilm
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.modules.conftest import BATCHES
from tests.support.bilm_numpy import BilmNumpy
from tests.support.weights import make_weights

SENTENCES = [sentence for batch in BATCHES for sentence in batch] + [["", "\u00a0 "]]


def alone(files, sentence):
    """The judge's layers [L+1, T, 2D] of one sentence that nothing came before."""
    return BilmNumpy(*files).embed([sentence])[0]


@pytest.fixture
def pair(files):
    return files()


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_each_sentence_has_the_vectors_it_has_alone(pair, batch_size):
    """Against the numpy judge, in input order, twice: nothing is carried from batch to batch or run to run."""
    vectors = TokenVectors(BiLM(*pair), "all", batch_size=batch_size, max_tokens=12)
    expected = [np.concatenate(alone(pair, s), axis=-1) if s else np.zeros((0, 48)) for s in SENTENCES]
    for _ in range(2):
        got = list(vectors(iter(SENTENCES)))
        assert [g.dtype for g in got] == [np.float32] * len(SENTENCES)
        for actual, truth in zip(got, expected, strict=True):
            assert actual.shape == truth.shape
            np.testing.assert_allclose(actual, truth, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("max_tokens", [1, 7, 149, 150, 151])
def test_a_long_sentence_is_run_in_stretches_with_the_same_vectors(pair, max_tokens, monkeypatch):
    """Equals the judge for any chunk length, at any position among others, and does not touch the state."""
    words, bilm, sizes = [f"w{i % 37}" for i in range(150)], BiLM(*pair), []
    run = bilm.lstm.run_layers
    monkeypatch.setattr(
        bilm.lstm, "run_layers", lambda x, *more, **named: sizes.append(x.shape) or run(x, *more, **named)
    )
    first, got, last = TokenVectors(bilm, "all", max_tokens=max_tokens)([["a"], words, ["b", "c"]])
    assert (len(first), len(last)) == (1, 2)
    assert max(shape[0] * shape[1] for shape in sizes) <= max_tokens + 2 * 2  # the markers of two sentences
    np.testing.assert_allclose(got, np.concatenate(alone(pair, words), axis=-1), rtol=1e-5, atol=1e-5)
    assert bilm.lstm._states is None


def test_the_last_model_is_kept_until_its_files_change(tmp_path):
    make_weights(tmp_path, seed=1)
    first = shared_bilm(tmp_path)
    assert shared_bilm(str(tmp_path)) is first
    assert shared_bilm(tmp_path, precision="bfloat16") is not first
    make_weights(tmp_path, seed=2)
    os.utime(tmp_path / "weights.hdf5", ns=(1, 1))
    again = shared_bilm(tmp_path)
    assert not torch.equal(next(again.parameters()), next(first.parameters()))


@pytest.mark.parametrize("model", ["nowhere", None, 3, ""])
def test_a_model_that_is_not_there(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((CheckpointError, ElmoFastError), match=r"wanted a folder|model must be the folder or archive"):
        TokenVectors(model)
