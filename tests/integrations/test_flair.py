"""ElmoEmbeddings in the real flair: modes, names, saving alone and within a tagger, odd sentences."""

import numpy as np
import pytest
import torch

flair = pytest.importorskip("flair", reason="needs the extra flair")
from flair.data import Sentence
from flair.embeddings import StackedEmbeddings
from flair.embeddings.base import load_embeddings

from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.integrations.flair import ElmoEmbeddings
from tests.support.weights import make_weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
WORDS = ["I", "like", "Berlin", "."]


def vectors(embeddings, *texts):
    """The vectors [T, W] of each text, its tokens parted by blanks."""
    sentences = [Sentence(text.split()) for text in texts]
    embeddings.embed(sentences)
    return [np.array([token.get_embedding(embeddings.get_names()).cpu().numpy() for token in s]) for s in sentences]


@pytest.mark.parametrize("mode", ["all", "top", "average"])
def test_each_mode_is_what_flairs_own_class_made_of_the_layers(model, truth, mode):
    embeddings = ElmoEmbeddings(model, embedding_mode=mode)
    assert embeddings.embedding_type == "word-level"
    for _ in range(2):
        _, got, _ = vectors(embeddings, "a", " ".join(WORDS), "b c")
        assert got.shape[1] == embeddings.embedding_length == (48 if mode == "all" else 16)
        np.testing.assert_allclose(got, truth(WORDS, mode), rtol=1e-5, atol=1e-5)


def test_a_pair_of_files_and_the_name(model, truth):
    embeddings = ElmoEmbeddings("mine", model / "options.json", model / "weights.hdf5", "top")
    assert str(embeddings) == embeddings.name == "elmo-mine-top"
    assert "elmo-mine-top" in repr(embeddings)
    np.testing.assert_allclose(vectors(embeddings, "a b")[0], truth(["a", "b"], "top"), rtol=1e-5, atol=1e-5)


def test_beside_other_embeddings(model, truth):
    stacked = StackedEmbeddings([ElmoEmbeddings(model, embedding_mode=mode) for mode in ("top", "average")])
    both = np.concatenate([truth(WORDS, "top"), truth(WORDS)], axis=1)
    np.testing.assert_allclose(vectors(stacked, " ".join(WORDS))[0], both, rtol=1e-5, atol=1e-5)
    assert stacked.embedding_length == 32


@pytest.mark.parametrize("with_weights", [True, False])
def test_saved_and_loaded_by_flair(tmp_path, truth, model, with_weights):
    """With the weights the files may go; without them they are read when they are needed, or said to be missing."""
    make_weights(tmp_path / "model")
    params = ElmoEmbeddings(tmp_path / "model", batch_size=3).save_embeddings(use_state_dict=with_weights)
    torch.save(params, tmp_path / "saved.pt")
    if with_weights:
        (tmp_path / "model").rename(tmp_path / "moved")
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    np.testing.assert_allclose(
        vectors(load_embeddings(saved), "a b")[0], truth(["a", "b"], "all"), rtol=1e-5, atol=1e-5
    )
    if not with_weights:
        (tmp_path / "model").rename(tmp_path / "moved")
        with pytest.raises(CheckpointError, match="model: wanted a folder"):
            vectors(load_embeddings(torch.load(tmp_path / "saved.pt", weights_only=True)), "a b")


def test_a_model_of_word_ids_finds_its_words_and_is_saved_with_them(word_model, tmp_path):
    """From a folder and from a pair of files; saved with its weights, the same vectors without the folder."""
    embeddings = ElmoEmbeddings(word_model)
    expected = next(TokenVectors(word_model, "all")([["I", "like", "zzz"]]))
    np.testing.assert_array_equal(vectors(embeddings, "I like zzz")[0], expected)
    pair = ElmoEmbeddings("mine", word_model / "options.json", word_model / "weights.hdf5")
    np.testing.assert_array_equal(vectors(pair, "I like zzz")[0], expected)
    torch.save(embeddings.save_embeddings(use_state_dict=True), tmp_path / "saved.pt")
    word_model.rename(tmp_path / "moved")
    again = load_embeddings(torch.load(tmp_path / "saved.pt", weights_only=True))
    np.testing.assert_array_equal(vectors(again, "I like zzz")[0], expected)


def test_a_tagger_learns_is_saved_and_loaded(tmp_path, model):
    """flair's SequenceTagger on top: some steps of training, then a file that holds all it needs."""
    from flair.data import Dictionary
    from flair.models import SequenceTagger

    tags = Dictionary(add_unk=False)
    for tag in ("N", "V"):
        tags.add_item(tag)
    make_weights(tmp_path / "model")
    tagger = SequenceTagger(
        ElmoEmbeddings(tmp_path / "model"), tags, "pos", use_rnn=False, use_crf=False, reproject_embeddings=False
    )
    sentences = [Sentence(["I", "sleep"]), Sentence(["you", "eat"])]
    for sentence in sentences:
        sentence[0].add_label("pos", "N")
        sentence[1].add_label("pos", "V")
    optimizer = torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], 0.05)
    for _ in range(60):
        loss, _ = tagger.forward_loss(sentences)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tagger.save(tmp_path / "tagger.pt")
    (tmp_path / "model").rename(tmp_path / "moved")
    again, sentence = SequenceTagger.load(tmp_path / "tagger.pt"), Sentence(["I", "sleep"])
    again.predict(sentence)
    assert [token.get_label("pos").value for token in sentence] == ["N", "V"]


def test_odd_sentences(model, truth):
    """None, an empty one among others, a very long one, words of strange characters."""
    embeddings = ElmoEmbeddings(model, embedding_mode="top", max_tokens=64)
    embeddings.embed([])
    empty, some, long = vectors(embeddings, "", "na\u00efve \u2022 \U0001f600", "word " * 300)
    assert len(empty) == 0
    np.testing.assert_allclose(some, truth(["na\u00efve", "\u2022", "\U0001f600"], "top"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(long, truth(["word"] * 300, "top"), rtol=1e-4, atol=1e-4)


def test_arguments_out_of_range(model):
    with pytest.raises(ElmoFastError, match="embedding_mode must be one of all, top, average; got 'mean'"):
        ElmoEmbeddings(model, embedding_mode="mean")
    with pytest.raises(CheckpointError, match="nowhere: wanted a folder"):
        ElmoEmbeddings("nowhere")
    with pytest.raises(CheckpointError, match="options_file and weight_file"):
        ElmoEmbeddings("mine", options_file=model / "options.json")
