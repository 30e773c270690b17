"""The sentences that an index finds are those of a search in float64; a folder is of one model, text and settings."""

import numpy as np
import pytest

from elmo_fast import ElmoEmbedder, SentenceIndex
from elmo_fast.embed import search
from elmo_fast.embed.token_files import VECTORS
from elmo_fast.errors import CheckpointError, ElmoFastError
from tests.support.weights import make_weights

TEXTS = [" ".join(f"{'abcdefg'[(i * j) % 7]}{i % 5}" for j in range(1, 2 + i % 6)) for i in range(40)]
TEXTS[7] = " "
QUERIES = ["a1 b2 c3", ["d4", "g0"], "f"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_weights(folder)
    return ElmoEmbedder.from_pretrained(folder)


def by_definition(embedder, layer, removed, topn, pool):
    """Numbers and cosines, nearest first: all in float64, with numpy's SVD of the centred vectors of the sentences."""
    numbers = [number for number, text in enumerate(TEXTS) if text.strip()]
    texts = [TEXTS[number] for number in numbers]
    rows, queries = (
        embedder.encode(each, pool, layers=layer, tokenizer="whitespace").astype(np.float64)
        for each in (texts, QUERIES)
    )
    if removed is not None:
        mean = rows.mean(0)
        components = np.linalg.svd(rows - mean)[2][:removed]
        rows, queries = (each - mean - (each - mean) @ components.T @ components for each in (rows, queries))
    rows, queries = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, queries))
    cosines = queries @ rows.T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :topn]
    return np.array(numbers)[order].tolist(), np.take_along_axis(cosines, order, axis=1)


@pytest.mark.parametrize(("removed", "pool"), [(None, "mean"), (0, "max"), (3, "first_last")])
def test_the_nearest_are_those_by_definition(embedder, tmp_path, monkeypatch, removed, pool):
    """Of each layer, in blocks of 4 rows; and again from the folder, where every number is the same."""
    monkeypatch.setattr(search, "BLOCK_BYTES", 4 * 4 * 3 * 16)
    index = embedder.index(TEXTS, pool, layers="all", tokenizer="whitespace", remove_components=removed, batch_size=7)
    index.save(tmp_path / "index")
    loaded = SentenceIndex.load(tmp_path / "index", embedder)
    for layer in range(3):
        numbers, cosines = by_definition(embedder, layer, removed, 9, pool)
        found = index.search(QUERIES, 9, layer=layer)
        assert [[each.number for each in near] for near in found] == numbers
        assert all(each.text == TEXTS[each.number] for near in found for each in near)
        np.testing.assert_allclose([[each.cosine for each in near] for near in found], cosines, atol=2e-5)
        assert loaded.search(QUERIES, 9, layer=layer) == found
    assert loaded.sentences == TEXTS
    assert loaded.made_from == index.made_from


def test_words_are_taken_as_they_are_and_one_string_is_one_query(embedder):
    steps = []
    index = embedder.index([["a", "c."], ["d"]], progress=lambda done, total: steps.append((done, total)))
    assert steps[-1] == (3, 3)
    [[near]] = index.search("a c.", 1)  # which "basic" splits: not the first sentence
    assert near.cosine < 0.999
    [[near]] = index.search([["a", "c."]], 1)
    assert near[1:] == (0, "a c.")
    assert near.cosine > 0.999
    assert index.search([], 1) == []


def test_a_folder_of_another_model_is_refused_and_a_damaged_one(embedder, tmp_path):
    """Other weights, another precision; a number changed; vectors of tokens are no index."""
    embedder.index(TEXTS).save(tmp_path / "index")
    make_weights(tmp_path / "other", seed=5)
    with pytest.raises(ElmoFastError, match="is of a different model;"):
        SentenceIndex.load(tmp_path / "index", ElmoEmbedder.from_pretrained(tmp_path / "other"))
    with pytest.raises(ElmoFastError, match="holds other files than an index; name another folder"):
        embedder.index(TEXTS).save(tmp_path / "other")
    file = tmp_path / "index" / VECTORS
    whole = file.read_bytes()
    file.write_bytes(whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:])
    with pytest.raises(CheckpointError, match="damaged, or changed"):
        SentenceIndex.load(tmp_path / "index", embedder)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda e: e.index(TEXTS, remove_components=16), "remove_components must be None or from 0.* to 15, .*got 16"),
        (lambda e: e.index(["a", "b"], remove_components=2), "to 1, below the number of sentences.*got 2"),
        (lambda e: e.index("a text"), "sentences must be a list of sentences"),
        (lambda e: e.index(["", " "]), "must have at least one token; every line is blank"),
        (lambda e: e.index([]), "must have at least one token; got no sentences"),
        (lambda e: SentenceIndex.load(e, "index"), "model, the second argument, must be an .*; got 'index'"),
        (lambda e: e.index(["a"]).search(["b", " "]), r"queries\[1\] must have at least one word"),
        (lambda e: e.index(["a"]).search("b", layer=2), "layer must be one of those of the index, average; got 2"),
        (lambda e: e.index(["a"], layers="all").search("b"), "layer must be one of .*0, 1, 2; got None"),
        (lambda e: e.index(["a"]).search("b", 0), "topn must be 1 or more"),
    ],
)
def test_what_cannot_be_searched_is_refused(embedder, call, sentence):
    with pytest.raises(ElmoFastError, match=sentence):
        call(embedder)
