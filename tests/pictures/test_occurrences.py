"""Occurrences of a word: all of them, where they are, with the vectors of their own sentences."""

import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import find_occurrences, occurrence_vectors

TEXT = "The bank was steep .\n\nA Bank is a bank\nno such word\nbanks bank\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_every_occurrence_is_found_in_order(text):
    """Twice in one line, in capitals, not within other words."""
    actual, total = find_occurrences(text, "bank")
    assert [(one.line, one.place) for one in actual] == [(0, 1), (2, 1), (2, 4), (4, 1)]
    assert total == 4
    assert [one.tokens[one.place] for one in find_occurrences(text, "Bank", match_case=True)[0]] == ["Bank"]


def test_of_many_some_are_drawn_by_the_seed(tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("a b a\n" * 100)
    actual, total = find_occurrences(path, "a", most=30)
    assert (len(actual), total) == (30, 200)
    assert actual == sorted(actual)
    assert len(set(map(str, actual))) == 30
    assert actual == find_occurrences(path, "a", most=30)[0] != find_occurrences(path, "a", most=30, seed=1)[0]


def test_every_token_is_found_without_a_word(text, tmp_path):
    actual, total = find_occurrences(text, None)
    assert [one.tokens[one.place] for one in actual] == TEXT.split()
    assert total == len(TEXT.split())
    (tmp_path / "blank").write_text("\n\n")
    with pytest.raises(ElmoFastError, match="blank: contains no tokens"):
        find_occurrences(tmp_path / "blank", None)


@pytest.mark.parametrize(
    ("word", "message"), [("river", "word must be a token of it; got 'river'"), ("a b", "got 'a b'")]
)
def test_no_occurrence_is_one_sentence(text, word, message):
    with pytest.raises(ElmoFastError, match=message):
        find_occurrences(text, word)


@pytest.mark.parametrize("layer", ["top", 0, "1"])
def test_vectors_are_those_of_each_sentence_alone(text, embedder, toy_model, layer):
    """Whether the embedder carries state or not."""
    actual, _ = find_occurrences(text, "bank")
    seen = []
    vectors = occurrence_vectors(ElmoEmbedder(*toy_model), actual, layer, batch_size=2, progress=seen.append)
    number = 2 if layer == "top" else int(layer)
    for occurrence, vector in zip(actual, vectors, strict=True):
        alone = embedder.embed_sentence(occurrence.tokens)[number, occurrence.place]
        np.testing.assert_allclose(vector, alone, atol=1e-6)
    assert sum(seen) == 12  # each sentence once


def test_a_layer_that_is_not_there_is_refused(text, embedder):
    actual, _ = find_occurrences(text, "bank")
    for layer in ("bottom", 3, -1):
        with pytest.raises(ElmoFastError, match='layer must be "top" or a number from 0 to 2; got'):
            occurrence_vectors(embedder, actual, layer)
