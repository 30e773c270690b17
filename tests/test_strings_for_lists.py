"""A string instead of a list of words or sentences is an error of one sentence, and is not read letter by letter."""

import numpy as np
import pytest

from elmo_fast import BiLM, ElmoEmbedder, Vocabulary, batch_to_ids
from elmo_fast.compat.allennlp import ELMoTokenCharactersIndexer
from elmo_fast.corpus import TypeTable, encode
from elmo_fast.embed.sentence_vectors import batches
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import words_picture, write_projector
from elmo_fast.static import Vectors, averaged_vectors, context_free_vectors
from elmo_fast.text import CharacterTable, count_words, words_to_ids
from tests.weights import make_weights

LETTERS = np.eye(4, dtype=np.float32)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return make_weights(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def bilm(toy):
    return BiLM(*toy, stateful=False)


@pytest.fixture(scope="module")
def embedder(toy):
    return ElmoEmbedder(*toy)


def test_a_long_string_is_cut_within_its_quotes(embedder):
    for ask in (lambda: embedder.embed_batch("a" * 100), lambda: Vocabulary("a" * 100)):
        with pytest.raises(ElmoFastError, match=r"got the string 'a{54}\.\.\.', which would be read"):
            ask()


VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "k", "i", "n", "g"])


@pytest.mark.parametrize(
    "ask",
    [
        lambda: batch_to_ids("king"),
        lambda: batch_to_ids(""),
        lambda: batch_to_ids(["king"]),
        lambda: Vocabulary("king"),
        lambda: VOCABULARY.ids("king"),
        lambda: CharacterTable("king"),
        lambda: words_to_ids("king"),
        lambda: count_words(["king"]),
        lambda: list(batches("king")),
        lambda: TypeTable.of("king"),
        lambda: encode(["king"], VOCABULARY),
        lambda: encode("king", VOCABULARY),
        lambda: Vectors("king", LETTERS),
        lambda: words_picture("king", LETTERS, "words.png"),
        lambda: write_projector("king", LETTERS, "projector"),
        lambda: ELMoTokenCharactersIndexer().tokens_to_indices("king"),
    ],
)
def test_functions_of_words_and_sentences(ask):
    with pytest.raises(ElmoFastError, match=r"a list of (words|sentences|tokens)"):
        ask()


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda e: e.embed_batch("king"), "batch must be a list of sentences, each a list of words .* 'king'"),
        (lambda e: e.embed_batch(""), "batch must be a list of sentences"),
        (lambda e: e.embed_batch([""]), r"batch\[0\] must be a list of words"),
        (lambda e: e.embed_batch([["I"], "so do I"]), r"batch\[1\] must be a list of words \(use text.split\(\)"),
        (lambda e: e.embed_sentence("so do I"), "sentence must be a list of words"),
        (lambda e: next(e.embed_sentences("king")), "sentences must be a list of sentences"),
        (lambda e: e.batch_to_embeddings("king"), "batch must be a list of sentences, each a list of words .* 'king'"),
    ],
)
def test_the_embedder(embedder, ask, sentence):
    with pytest.raises(ElmoFastError, match=sentence):
        ask(embedder)


@pytest.mark.parametrize(
    "ask",
    [
        lambda b: context_free_vectors(b, "king"),
        lambda b: averaged_vectors(b, "king"),
        lambda b: averaged_vectors(b, ["king"]),
        lambda b: list(TokenVectors(b)("king")),
        lambda b: b.create_cached_cnn_embeddings("king"),
        lambda b: b.batch_to_ids("king"),
    ],
)
def test_functions_of_a_model(bilm, ask):
    with pytest.raises(ElmoFastError, match=r"a list of (words|sentences)"):
        ask(bilm)
