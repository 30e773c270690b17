"""Models of word ids: rows of a table, BOS and EOS, <UNK>; Elmo and ElmoEmbedder need the vocabulary and find it."""

import numpy as np
import pytest
import torch

from elmo_fast import BiLM, Elmo, ElmoEmbedder
from elmo_fast.checkpoints import load_checkpoint, read_options
from elmo_fast.embed.sentence_vectors import long_activations
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.word_encoder import WordEncoder
from elmo_fast.text import Vocabulary
from tests.support.bilm_numpy import BilmNumpy

WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "."]
BATCH = [["the", "cat", "sat", "."], ["the", "zebra"], ["."]]


@pytest.fixture
def model(files):
    """A folder with options.json and weights.hdf5 of a model of word ids, and vocab.txt."""
    folder = files(words=len(WORDS))[0].parent
    Vocabulary(WORDS).write(folder / "vocab.txt")
    return folder


def pair(folder):
    return folder / "options.json", folder / "weights.hdf5"


def test_vectors_are_rows_and_the_layers_equal_the_judges(model):
    """Layer 0 is the word's row twice, <UNK>'s for others; the layers above are the judge's on the same vectors."""
    state, _ = load_checkpoint(model)
    table = state["_word_embedding.weight"].double().numpy()
    judge = BilmNumpy(*pair(model))
    embedder = ElmoEmbedder.from_pretrained(model, stateful=False)
    for sentence, actual in zip(BATCH, embedder.embed_batch(BATCH), strict=True):
        rows = [WORDS.index(word if word in WORDS else "<UNK>") + 1 for word in ["<S>", *sentence, "</S>"]]
        np.testing.assert_array_equal(actual[0], np.tile(table[rows[1:-1]], 2).astype(np.float32))
        judge.states = {}
        truth = judge.run_lstms(table[rows][None], [len(rows)])
        for layer, expected in zip(actual, truth, strict=True):
            np.testing.assert_allclose(layer, expected[0, 1:-1], rtol=1e-5, atol=1e-5)


def test_the_vocabulary_is_found_beside_folder_and_files_or_given(model):
    expected = ElmoEmbedder.from_pretrained(model, stateful=False).embed_sentence(BATCH[0])
    for embedder in (ElmoEmbedder(*pair(model), stateful=False), ElmoEmbedder(model, None, stateful=False)):
        np.testing.assert_array_equal(embedder.embed_sentence(BATCH[0]), expected)
    (model / "vocab.txt").unlink()
    embedder = ElmoEmbedder(*pair(model), stateful=False)
    with pytest.raises(ElmoFastError, match=r"reads word ids, and its words are not known here; put its vocab\.txt"):
        embedder.embed_sentence(BATCH[0])
    embedder = ElmoEmbedder(*pair(model), stateful=False, vocabulary=Vocabulary(WORDS))
    np.testing.assert_array_equal(embedder.embed_sentence(BATCH[0]), expected)
    embedder = ElmoEmbedder.from_pretrained(model, stateful=False, vocabulary=Vocabulary(WORDS))
    np.testing.assert_array_equal(embedder.embed_sentence(BATCH[0]), expected)
    with pytest.raises(ElmoFastError, match="vocabulary must have the 7 words that the model was trained with; got 8"):
        BiLM(*pair(model), vocabulary=Vocabulary([*WORDS, "more"]))


def test_elmo_takes_ids_of_any_outer_shape_and_reloads_from_its_folder(model, tmp_path):
    elmo = Elmo.from_pretrained(model, 2, dropout=0, stateful=False)
    ids = elmo.batch_to_ids(BATCH)
    assert ids.tolist() == [[4, 5, 6, 7], [4, 3, 0, 0], [7, 0, 0, 0]]
    output = elmo(ids)
    assert output["elmo_representations"][1].shape == (3, 4, 16)
    assert output["mask"].sum(1).tolist() == [4, 2, 1]
    nested = elmo(ids[:2].reshape(2, 1, 4))
    torch.testing.assert_close(nested["elmo_representations"][0][:, 0], output["elmo_representations"][0][:2])
    elmo.save_pretrained(tmp_path / "saved")
    again = Elmo.from_pretrained(tmp_path / "saved", stateful=False)(ids)
    torch.testing.assert_close(again["elmo_representations"], output["elmo_representations"], rtol=0, atol=0)


def test_gradients_of_the_table_are_of_the_words_read_as_rows_where_asked(model):
    actual = []
    for sparse in (False, True):
        bilm = BiLM(*pair(model), requires_grad=True, stateful=False)
        bilm.encoder.sparse = sparse
        bilm(bilm.batch_to_ids(BATCH))["activations"][-1].square().sum().backward()
        actual.append(bilm.encoder.weight.grad)
    dense, rows = actual
    assert rows.is_sparse
    torch.testing.assert_close(rows.to_dense(), dense)
    assert not dense[0].any()
    assert dense[1:].any(1).all()
    assert not any(parameter.requires_grad for parameter in BiLM(model).parameters())  # frozen unless asked


def test_a_new_table_is_bilm_tfs_and_its_padding_zero(model):
    encoder = WordEncoder(read_options(model / "options.json"))
    bound = (6 / (len(WORDS) + 8)) ** 0.5
    assert 0.5 * bound < encoder.weight.abs().max() <= bound
    assert not encoder.weight[0].any()


def test_what_cannot_be_read_is_said(model, files):
    bilm = BiLM(model)
    with pytest.raises(ElmoFastError, match=r"inputs must be word ids \+ 1 of shape \[B, T\]"):
        bilm(torch.zeros(1, 2, 50, dtype=torch.int64))
    with pytest.raises(ElmoFastError, match=r"from 0 to 7; got 3 to 8"):
        bilm(torch.tensor([[3, 8]]))
    with pytest.raises(ElmoFastError, match="vocab_to_cache needs a model that reads characters"):
        BiLM(model, vocab_to_cache=["the"])
    with pytest.raises(ElmoFastError, match="options must be of a model of word ids"):
        WordEncoder(read_options(files()[0]))


def test_a_sentence_in_stretches_and_token_vectors_are_the_models_own(model):
    """Words only: three at a time as all at once; TokenVectors finds the vocabulary as ElmoEmbedder does."""
    bilm = BiLM(model, stateful=False)
    sentence = ["the", "cat", "zebra", "sat", "the", "cat", "."]
    whole = ElmoEmbedder.from_pretrained(model, stateful=False).embed_sentence(sentence)
    parts = long_activations(bilm, bilm.batch_to_ids([sentence])[0], 3)
    np.testing.assert_allclose(torch.stack(parts), whole, rtol=1e-5, atol=1e-6)
    (actual,) = TokenVectors(model, "top")([sentence])
    np.testing.assert_allclose(actual, whole[-1], rtol=1e-5, atol=1e-6)
