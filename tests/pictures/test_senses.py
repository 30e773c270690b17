"""Planted senses are recovered, one cloud stays one, and typical words are those planted."""

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures import Occurrence, senses_of
from elmo_fast.pictures.senses import context_of, picture, title_of, typical_words

CONTEXTS = (
    "sat on the {} of the river with a boat",
    "took money to the {} and asked a clerk for credit",
    "the {} shot was fine",
)


def planted(sizes, width=40, apart=6.0, seed=0):
    """Occurrences with a context per sense, shuffled, their vectors in as many clouds, and the sense of each."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = rng.normal(size=(len(sizes), width)) * apart / np.sqrt(width)
    vectors = (centres[truth] * 3 + rng.normal(size=(len(truth), width)) * 0.5).astype(np.float32)
    tokens = [CONTEXTS[sense].format("bank").split() for sense in truth]
    return [Occurrence(i, one.index("bank"), one) for i, one in enumerate(tokens)], vectors, truth


@pytest.mark.parametrize("clustering", ["kmeans", "agglomerative"])
@pytest.mark.parametrize("sizes", [(60, 25), (50, 30, 20)])
def test_planted_senses_are_found_with_their_number(clustering, sizes):
    """Every occurrence is in the cluster of its sense, the same twice; the largest comes first."""
    occurrences, vectors, truth = planted(sizes)
    senses = senses_of(occurrences, vectors, clustering=clustering)
    assert senses.sizes == list(sizes)
    np.testing.assert_array_equal(senses.labels, truth)
    assert max(senses.silhouettes, key=senses.silhouettes.get) == len(sizes)
    assert senses.silhouettes[len(sizes)] > senses.chance
    assert "river" in senses.typical[0]
    assert "money" in senses.typical[1]
    assert "bank" not in str(senses.typical)
    again = senses_of(occurrences, vectors, clustering=clustering)
    np.testing.assert_array_equal(again.labels, senses.labels)
    np.testing.assert_array_equal(again.points, senses.points)


@pytest.mark.parametrize(("count", "decay"), [(40, 0.8), (150, 1.0)])
def test_one_cloud_stays_one(count, decay):
    """Normal vectors, round or long: most samples are not split (one in eleven may be, by chance)."""
    whole = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(count, 20)) * decay ** np.arange(20)
        occurrences = [Occurrence(i, 0, ["bank"]) for i in range(count)]
        whole += senses_of(occurrences, vectors.astype(np.float32)).sizes == [count]
    assert whole >= 2


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_and_equal_occurrences(count):
    """They are plotted, and equal points form no clusters."""
    occurrences, vectors, _ = planted((4,))
    senses = senses_of(occurrences[:count], np.ones_like(vectors[:count]))
    assert senses.sizes == [count]
    assert senses.points.shape == (count, 2)
    assert np.isfinite(senses_of(occurrences[:count], vectors[:count]).points).all()


def test_a_number_of_clusters_is_obeyed():
    occurrences, vectors, _ = planted((60, 25))
    for number in (1, 2, 5):
        senses = senses_of(occurrences, vectors, number)
        assert len(senses.sizes) == number
        assert sum(senses.sizes) == 85
        assert senses.sizes == sorted(senses.sizes, reverse=True) == np.bincount(senses.labels).tolist()
    for wrong in (0, 86, "many", 2.0):
        with pytest.raises(ElmoFastError, match='clusters must be "auto" or 1 to 85'):
            senses_of(occurrences, vectors, wrong)
    with pytest.raises(ElmoFastError, match="3 clusters need as many different vectors; got 1"):
        senses_of(occurrences, np.ones_like(vectors), 3)


def test_a_context_is_five_words_to_either_side():
    tokens = [*"abcde", "F", "Bank", ",", "G", *"hijkl"]
    assert context_of(Occurrence(0, 6, tokens)) == ["b", "c", "d", "e", "f", "g", "h", "i", "j"]
    assert context_of(Occurrence(0, 1, ["bank", "Bank", "!"])) == []


def test_typical_words_are_frequent_here_and_not_there():
    """A word that occurs everywhere is typical of nothing; equal scores are in alphabetical order."""
    occurrences, _, truth = planted((30, 20))
    typical = typical_words(occurrences, truth)
    assert typical[0] == ["of", "on", "river", "sat", "with"]
    assert {"money", "asked"} < set(typical[1])
    assert "the" not in typical[0] + typical[1]
    rare = [Occurrence(0, 0, ["bank", "x", word]) for word in "abcdef"]
    assert typical_words(rare, np.array([0, 1] * 3)) == [[], []]  # what occurs once distinguishes nothing


def test_words_typical_of_a_single_cluster_are_near_the_word():
    """They are compared with the rest of the sentences: frequent words stand there too."""
    tokens = [*["the", "a"] * 4, "river", "bank", "of", *["the", "a"] * 4]
    occurrences = [Occurrence(i, tokens.index("bank"), tokens) for i in range(9)]
    assert typical_words(occurrences, np.zeros(9, np.int64)) == [["of", "river"]]
    assert typical_words([Occurrence(0, 0, ["bank", "the"])] * 2, np.zeros(2, np.int64)) == [[]]


def test_the_picture_has_every_occurrence_and_says_how_the_clusters_part():
    occurrences, vectors, truth = planted((60, 25))
    senses = senses_of(occurrences, vectors)
    figure = picture(senses, "ba$nk", "a text")
    (axes,) = figure.axes
    assert [len(part.get_offsets()) for part in axes.collections] == [60, 25]
    np.testing.assert_allclose(axes.collections[1].get_offsets(), senses.points[truth == 1], rtol=1e-5)
    assert axes.get_title("left") == '"ba\\$nk": 85 occurrences in 2 clusters'
    assert "silhouette" in axes.get_xlabel()
    assert "a text" in axes.get_xlabel()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[0].startswith("60: ")
    assert "river" in legend[0]
    assert title_of(senses_of(occurrences[:1], vectors[:1]), "bank") == '"bank": 1 occurrence in 1 cluster'
