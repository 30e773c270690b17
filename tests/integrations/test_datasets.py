"""ElmoColumn in Dataset.map: its vectors, other processes, the cache by the model, rows that are no sentence."""

import pickle
import shutil

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")

from datasets.fingerprint import Hasher

from elmo_fast.errors import ElmoFastError
from elmo_fast.integrations.datasets import ElmoColumn
from tests.weights import make_weights

SENTENCES = [["I", "like", "Berlin"], ["So", "do", "I", "."], ["Wind"]]


def test_vectors_of_words_and_of_strings(model, truth):
    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_dict({"words": SENTENCES, "text": [" ".join(words) for words in SENTENCES]})
    made = rows.map(ElmoColumn(model), batched=True, batch_size=2)
    pooled = rows.map(ElmoColumn(model, "text", "v", "top", "max"), batched=True)
    for number, words in enumerate(SENTENCES):
        np.testing.assert_allclose(np.array(made[number]["vectors"]), truth(words), atol=2e-6)
        np.testing.assert_allclose(np.array(pooled[number]["v"]), truth(words, "top").max(axis=0), atol=2e-6)


def test_copies_hold_no_weights_and_the_cache_knows_the_model(model, tmp_path):
    """Equal ones have one fingerprint; another model under the same name has another, and is refused elsewhere."""
    place = shutil.copytree(model, tmp_path / "model")
    made, same, other = ElmoColumn(place), ElmoColumn(place), ElmoColumn(place, layers="top")
    content = pickle.dumps(made)
    assert len(content) < 2000
    assert Hasher.hash(made) == Hasher.hash(same) != Hasher.hash(other)
    copy = pickle.loads(content)
    batch = {"words": SENTENCES}
    assert all(np.array_equal(*both) for both in zip(copy(batch)["vectors"], made(batch)["vectors"], strict=True))
    make_weights(place, seed=5)
    assert Hasher.hash(ElmoColumn(place)) != Hasher.hash(made)
    with pytest.raises(ElmoFastError, match=r"model .*model: wanted that of the first process \(sha256 "):
        pickle.loads(content)(batch)


def test_what_is_no_sentence_is_named(model):
    made = ElmoColumn(model)
    with pytest.raises(ElmoFastError, match="column must be one of text; got 'words'"):
        made({"text": ["a"]})
    for value in (None, ["a", 1], 3):
        with pytest.raises(
            ElmoFastError, match="column 'words', row 1 of the batch: wanted a string or a list of words"
        ):
            made({"words": ["a", value]})
    with pytest.raises(ElmoFastError, match="pooling must be one of mean, max; got 'sum'"):
        ElmoColumn(model, pooling="sum")
