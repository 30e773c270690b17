"""Models of ELMoForManyLangs give the vectors of its formula, and of its own code."""

import pickle

import numpy as np
import pytest
import torch

from elmo_fast import BiLM, CharacterEncoder, Elmo, ElmoEmbedder, batch_to_ids
from elmo_fast.embed.sentence_vectors import run_batches
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import write_word_vectors
from tests.support.manylangs import SENTENCES, formula, write_model
from tests.support.tolerances import assert_close

KINDS = {
    "as published": {},
    "tanh": {"activation": "tanh", "n_highway": 0},
    "characters alone": {"word_dim": 0, "legacy": True},
    "words alone": {"char_dim": 0},
    "words that are not cut": {"char_dim": 0, "embedder": "lstm"},
    "no clips": {"cell_clip": 0, "proj_clip": None},
    "joined directions": {"encoder": "lstm"},
}


def embedded(model, sentences):
    vectors = ElmoEmbedder(model, None, stateful=False).embed_batch(sentences)
    return [torch.from_numpy(array) for array in vectors]


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_the_formula(kind, tmp_path):
    """In float32, each sentence is as by itself whatever the batch holds; in float64 to its last digits."""
    folder = write_model(tmp_path / "model", **KINDS[kind])
    truth = formula(folder, SENTENCES)
    bilm = BiLM(folder, stateful=False).double()
    with torch.no_grad():
        exact = bilm(bilm.batch_to_ids(SENTENCES))["activations"]
    for row, (words, actual, expected) in enumerate(zip(SENTENCES, embedded(folder, SENTENCES), truth, strict=True)):
        assert_close(f"sentence {row}", actual[-len(expected) :], expected)
        layers = torch.stack([layer[row, 1 : len(words) + 1] for layer in exact])
        torch.testing.assert_close(layers[-len(expected) :], expected, rtol=1e-12, atol=1e-12)


def test_state_is_carried_unless_directions_are_joined(tmp_path):
    folder = write_model(tmp_path / "model")
    embedder = ElmoEmbedder(folder, None)
    first, second = (embedder.embed_batch([["a", "abc"]])[0] for _ in range(2))
    assert not np.array_equal(first[1:], second[1:])
    embedder.reset_states()
    assert np.array_equal(first, embedder.embed_batch([["a", "abc"]])[0])
    joined = ElmoEmbedder(write_model(tmp_path / "joined", encoder="lstm"), None)
    assert not joined.elmo_bilm.stateful  # and carries nothing
    assert np.array_equal(joined.embed_batch([["a"]])[0], joined.embed_batch([["a"]])[0])


@pytest.mark.parametrize("kind", ["as published", "words alone", "joined directions"])
def test_vectors_do_not_depend_on_batches_stretches_caches_or_copies(kind, tmp_path):
    folder = write_model(tmp_path / "model", **KINDS[kind])
    sentences = [*SENTENCES[:2], ["a", "abc", "東", "é"] * 5]
    expected = [array.numpy() for array in embedded(folder, sentences)]
    bilm = pickle.loads(pickle.dumps(BiLM(folder, unique_words=False, cache_size=0)))
    actual = {}
    for batch in run_batches(bilm, sentences, batch_size=2, max_tokens=7):
        actual |= zip(batch.indices, batch.vectors(side_by_side=False), strict=True)
    for i, array in enumerate(expected):
        np.testing.assert_allclose(actual[i], array, rtol=1e-5, atol=1e-6)
    bilm._token_embedder.unique_words = bilm._token_embedder._waits_for_nothing = True  # as on a GPU
    (batch,) = run_batches(bilm, sentences, window=0)
    for actual, array in zip(batch.vectors(), expected, strict=True):
        np.testing.assert_allclose(actual, array, rtol=1e-5, atol=1e-6)


def test_elmo_trains_lexicon_and_mix(tmp_path):
    """Gradients reach every parameter; a saved Elmo loads with the same bits, lexicons and settings."""
    for kind in ("as published", "joined directions"):
        folder = write_model(tmp_path / kind, **KINDS[kind])
        elmo = Elmo.from_pretrained(folder, 2, requires_grad=True, dropout=0.0, stateful=False)
        ids = elmo.batch_to_ids(SENTENCES)
        output = elmo(ids)["elmo_representations"]
        (output[0] * torch.randn_like(output[0])).sum().backward()
        assert all(p.grad.any() for n, p in elmo.named_parameters() if not n.startswith("scalar_mix_1"))
        elmo.save_pretrained(tmp_path / "saved" / kind)
        again = Elmo.from_pretrained(tmp_path / "saved" / kind, stateful=False).eval()
        assert torch.equal(again(again.batch_to_ids(SENTENCES))["elmo_representations"][0], output[0])


def test_what_another_model_reads_is_refused(tmp_path):
    folder = write_model(tmp_path / "model")
    bilm = BiLM(folder)
    with pytest.raises(ElmoFastError, match=r"shape \[B, T, 11\].*the model's batch_to_ids"):
        bilm(batch_to_ids([["abc"]], 10))
    with pytest.raises(ElmoFastError, match="must be a word"):
        bilm.batch_to_ids([[b"abc"]])
    with pytest.raises(ElmoFastError, match="this model reads lexicons"):
        write_word_vectors(bilm, ["abc"], tmp_path / "words.hdf5")
    with pytest.raises(ElmoFastError, match=r'encoder "lstm".*precision=int8'):
        BiLM(write_model(tmp_path / "joined", encoder="lstm"), precision="int8")
    assert CharacterEncoder(folder).get_output_dim() == 6
