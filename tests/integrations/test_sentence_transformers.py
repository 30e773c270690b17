"""ElmoTokens in the real SentenceTransformer: encode, save and load, training, odd texts."""

import numpy as np
import pytest
import torch

pytest.importorskip(
    "sentence_transformers",
    reason="needs the extra sbert",
)
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.integrations import sentence_transformers as integration
from elmo_fast.integrations.sentence_transformers import ElmoTokens

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXTS = ["I like Berlin", "So do I .", "", "rain  and\twind and a longer text than the others"]


def encoder(model, **arguments):
    tokens = ElmoTokens(model, **arguments)
    return SentenceTransformer(modules=[tokens, Pooling(tokens.get_embedding_dimension())], device="cpu")


def means(truth, layers="average"):
    """The mean of each text's vectors; zeros for a text without tokens."""
    width = len(truth(["a"], layers)[0])
    return [truth(text.split(), layers).mean(axis=0) if text.split() else np.zeros(width) for text in TEXTS]


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_encode_gives_the_pooled_vectors(model, truth, layers):
    """In any batches: nothing is carried from one to the next."""
    sentences = encoder(model, layers=layers)
    for batch_size in (1, 3, 32):
        got = sentences.encode(TEXTS, batch_size=batch_size)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, means(truth, layers), rtol=1e-5, atol=1e-5)
    assert sentences.encode("I like Berlin").shape == got[0].shape
    np.testing.assert_allclose(sentences.encode(["", " "]), 0)


def test_token_vectors_of_encode(model, truth):
    for text, got in zip(TEXTS, encoder(model).encode(TEXTS, output_value="token_embeddings"), strict=True):
        if text:
            np.testing.assert_allclose(got.cpu().numpy(), truth(text.split()), rtol=1e-5, atol=1e-5)


def test_raw_text_is_split_as_encode_does(model):
    raw, tokens = ["So do I."], ["So do I ."]
    new = encoder(model)
    np.testing.assert_array_equal(new.encode(raw), new.encode(tokens))
    with pytest.raises(ElmoFastError, match=r"text_tokenizer must be one of whitespace, .*; got <method 'split'"):
        encoder(model, text_tokenizer=str.split)
    by_space = encoder(model, text_tokenizer="whitespace")
    assert np.abs(by_space.encode(raw) - by_space.encode(tokens)).max() > 1e-3


def test_saved_and_loaded(model, truth, tmp_path):
    """SentenceTransformer.save writes model and arguments; it loads where the first folder is gone."""
    gone = tmp_path / "gone"
    gone.symlink_to(model)
    encoder(gone, layers=[2, 0], max_seq_length=3, text_tokenizer="whitespace").save(str(tmp_path / "saved"))
    gone.unlink()
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert (again[0].layers, again.max_seq_length, again[0].text_tokenizer) == ([2, 0], 3, "whitespace")
    np.testing.assert_array_equal(again.encode(TEXTS), encoder(model, layers=[2, 0], max_seq_length=3).encode(TEXTS))
    (tmp_path / "saved" / "0_ElmoTokens" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="damaged"):
        SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)


def test_a_model_of_word_ids_is_saved_with_its_words(word_model, tmp_path):
    """vocab.txt goes along: the vectors are the same where the first folder is gone."""
    sentences = encoder(word_model)
    expected = sentences.encode(["I like Berlin", "wind zzz", ""])
    assert expected[:2].any(axis=1).all()
    sentences.save(str(tmp_path / "saved"))
    word_model.rename(tmp_path / "moved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_array_equal(again.encode(["I like Berlin", "wind zzz", ""]), expected)


def test_max_seq_length_and_prompt(model, truth):
    sentences = encoder(model, max_seq_length=2)
    np.testing.assert_allclose(sentences.encode("a b c"), truth(["a", "b"]).mean(axis=0), rtol=1e-5, atol=1e-5)
    sentences.max_seq_length = None
    got = sentences.encode("b c", prompt="query: ")
    np.testing.assert_allclose(got, truth(["query", ":", "b", "c"]).mean(axis=0), rtol=1e-5, atol=1e-5)


def test_long_texts_are_run_in_bounded_memory(model, truth, monkeypatch):
    """No more tokens at a time than said, and the same vectors."""
    monkeypatch.setattr(integration, "MAX_TOKENS", 64)
    sentences, sizes = encoder(model), []
    lstm = sentences[0].bilm.lstm
    run = lstm.run_layers
    monkeypatch.setattr(lstm, "run_layers", lambda *x, **y: sizes.append(x[0].shape[0] * x[0].shape[1]) or run(*x, **y))
    got = sentences.encode(["word " * 300, "a b", "word " * 30] * 2)
    np.testing.assert_allclose(got[0], truth(["word"] * 300).mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[4], truth(["a", "b"]).mean(axis=0), rtol=1e-5, atol=1e-5)
    assert max(sizes) <= 64 + 2 * 32


def test_training_reaches_the_bilm_only_where_it_is_asked_for(model):
    for requires_grad in (False, True):
        sentences = encoder(model, requires_grad=requires_grad)
        features = sentences(sentences[0].preprocess(TEXTS))
        if requires_grad:
            features["sentence_embedding"].square().sum().backward()
            grads = [p.grad for p in sentences[0].bilm.parameters()]
            assert all(g is not None and torch.isfinite(g).all() for g in grads)
            assert any(g.any() for g in grads)
        else:
            assert not features["sentence_embedding"].requires_grad


def test_arguments_and_inputs_out_of_range(model):
    with pytest.raises(ElmoFastError, match="layers must be"):
        ElmoTokens(model, layers="best")
    with pytest.raises(CheckpointError, match="nowhere: wanted a folder"):
        ElmoTokens("nowhere")
    with pytest.raises(ElmoFastError, match=r"inputs\[1\] must be a string; got None"):
        ElmoTokens(model).preprocess(["a", None])
    with pytest.raises(ElmoFastError, match="stateful"):
        ElmoTokens(integration.BiLM(model))
