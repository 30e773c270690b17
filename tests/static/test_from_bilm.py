"""Vectors of words that a biLM gives: by themselves, and as means over a text."""

import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import averaged_vectors, context_free_vectors
from tests.support.weights import make_weights

SENTENCES = ["The cat sat .", "A dog sat on The cat .", "", "The dog , The cat", "Résumé ."]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return ElmoEmbedder(*map(str, make_weights(tmp_path_factory.mktemp("toy"))), stateful=False)


@pytest.fixture(scope="module")
def occurrences(embedder):
    """word -> all its vectors, [L, 2D] each, sentence by sentence."""
    actual = {}
    for sentence in SENTENCES:
        for word, vector in zip(
            sentence.split(), embedder.embed_sentence(sentence.split()).swapaxes(0, 1), strict=True
        ):
            actual.setdefault(word, []).append(vector)
    return actual


def test_layer_0_is_a_words_own(embedder, occurrences):
    """The same vector in every sentence; layer 0 of the embedder lays it side by side twice."""
    words = ["dog", "The", "Résumé", "never-seen"]
    seen = []
    vectors = context_free_vectors(embedder.elmo_bilm, words, batch_size=3, progress=seen.append)
    assert vectors.words == words
    assert seen == [3, 1]
    for word in words[:3]:
        for occurrence in occurrences[word]:
            np.testing.assert_allclose(np.tile(vectors.vector(word), 2), occurrence[0], atol=1e-6)
    with pytest.raises(ElmoFastError, match="words must be all different; got 'a' twice"):
        context_free_vectors(embedder.elmo_bilm, ["a", "a"])


@pytest.mark.parametrize("layer", ["top", "average", 0, 1])
@pytest.mark.parametrize("batch", [{"batch_size": 2}, {"max_tokens": 3}])
def test_the_mean_over_a_words_occurrences(embedder, occurrences, layer, batch):
    """Vectors of each layer, for any batches; frequent words first."""
    sentences = [sentence.split() for sentence in SENTENCES]
    seen = []
    vectors = averaged_vectors(embedder.elmo_bilm, sentences, layer, progress=seen.append, **batch)
    assert vectors.words == sorted(occurrences, key=lambda word: (-len(occurrences[word]), word))
    assert sum(seen) == sum(map(len, sentences))
    for word, actual in occurrences.items():
        mean = np.mean(actual, axis=0)
        expected = mean[-1] if layer == "top" else mean.mean(0) if layer == "average" else mean[layer]
        np.testing.assert_allclose(vectors.vector(word), expected, atol=2e-6)


def test_rare_words_are_left_out(embedder):
    sentences = [sentence.split() for sentence in SENTENCES]
    assert averaged_vectors(embedder.elmo_bilm, sentences, min_count=2).words == ["The", ".", "cat", "dog", "sat"]
    assert averaged_vectors(embedder.elmo_bilm, sentences, max_words=2).words == ["The", "."]


def test_what_does_not_go(embedder):
    for sentences, settings, sentence in [
        ([["a"]], {"layer": 7}, "layers must be"),
        ([["a"]], {"min_count": 2}, "no word of the text occurs min_count=2 times; give a smaller"),
        (iter([["a"]]), {}, "sentences must be a list .* got an iterator"),
    ]:
        with pytest.raises(ElmoFastError, match=sentence):
            averaged_vectors(embedder.elmo_bilm, sentences, **settings)


def test_a_model_of_word_ids_gives_its_embedding(tmp_path):
    """Layer 0 of such a model is the table's row, that of <UNK> for a word it does not know."""
    from elmo_fast import BiLM
    from elmo_fast.checkpoints import ElmoOptions, LstmOptions
    from elmo_fast.text import Vocabulary

    words = ["<S>", "</S>", "<UNK>", "dog", "cat"]
    lstm = LstmOptions(dim=8, projection_dim=4, n_layers=1)
    bilm = BiLM(
        ElmoOptions(lstm=lstm, char_cnn=None, n_tokens_vocab=len(words)), vocabulary=Vocabulary(words), stateful=False
    )
    vectors = context_free_vectors(bilm, ["cat", "never-seen"])
    expected = bilm.encoder.encode(bilm.batch_to_ids([["cat", "<UNK>"]]))[0].detach().numpy()
    np.testing.assert_array_equal(vectors.matrix, expected)
    assert not np.array_equal(expected[0], expected[1])
