"""A string instead of a list of words is an error of one sentence, and is not read letter by letter."""

import numpy as np
import pytest

from elmo_fast import BiLM, Vocabulary
from elmo_fast.compat.allennlp import ELMoTokenCharactersIndexer
from elmo_fast.corpus import TypeTable
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import words_picture, write_projector
from elmo_fast.static import Vectors, context_free_vectors
from elmo_fast.text import CharacterTable, words_to_ids
from tests.support.weights import make_weights

LETTERS = np.eye(4, dtype=np.float32)
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "k", "i", "n", "g"])


@pytest.fixture(scope="module")
def bilm(tmp_path_factory):
    return BiLM(*make_weights(tmp_path_factory.mktemp("toy")), stateful=False)


def test_a_long_string_is_cut_within_its_quotes():
    with pytest.raises(ElmoFastError, match=r"got the string 'a{54}\.\.\.', which would be read"):
        Vocabulary("a" * 100)


@pytest.mark.parametrize(
    "ask",
    [
        lambda b: Vocabulary("king"),
        lambda b: VOCABULARY.ids("king"),
        lambda b: CharacterTable("king"),
        lambda b: words_to_ids("king"),
        lambda b: TypeTable.of("king"),
        lambda b: Vectors("king", LETTERS),
        lambda b: words_picture("king", LETTERS, "words.png"),
        lambda b: write_projector("king", LETTERS, "projector"),
        lambda b: ELMoTokenCharactersIndexer().tokens_to_indices("king"),
        lambda b: context_free_vectors(b, "king"),
        lambda b: b.create_cached_cnn_embeddings("king"),
    ],
)
def test_functions_of_words(bilm, ask):
    with pytest.raises(ElmoFastError, match=r"a list of (words|sentences|tokens)"):
        ask(bilm)
