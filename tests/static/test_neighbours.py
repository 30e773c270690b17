"""The nearest vectors are those that float64 and a full sort find; files of token vectors are whole or refused."""

import numpy as np
import pytest

from elmo_fast._io.atomic_folder import write_manifest
from elmo_fast.embed import search
from elmo_fast.embed.token_files import FORMAT, VECTORS, read_cache_folder, writing_cache_folder
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.static import Vectors, most_similar, nearest, nearest_words


def by_sorting(matrix, queries, topn):
    """The definition: every cosine in float64, sorted, of equal ones the earlier row."""
    wide = [array.astype(np.float64) for array in (matrix, queries)]
    unit = [a / np.where((n := np.linalg.norm(a, axis=1, keepdims=True)) > 0, n, 1) for a in wide]
    cosines = unit[1] @ unit[0].T
    rows = np.argsort(-cosines, axis=1, kind="stable")[:, :topn]
    return rows, np.take_along_axis(cosines, rows, 1)


@pytest.mark.parametrize(("n", "d", "q", "topn"), [(1, 1, 1, 1), (7, 3, 2, 9), (1000, 17, 5, 10), (300, 64, 1, 300)])
@pytest.mark.parametrize("block", [1, 37, 5000])
def test_nearest_is_what_sorting_finds(monkeypatch, n, d, q, topn, block):
    """Blocks of any size, rows of any length, zeros among them."""
    rng = np.random.default_rng(n)
    matrix = (rng.standard_normal((n, d)) * rng.uniform(0.1, 9, (n, 1))).astype(np.float32)
    queries = rng.standard_normal((q, d)).astype(np.float32)
    if n > 3:
        matrix[3] = 0
    rows, cosines = by_sorting(matrix, queries, topn)
    monkeypatch.setattr(search, "BLOCK_BYTES", 4 * d * block)
    actual = nearest(matrix, queries, topn)
    np.testing.assert_array_equal(actual.rows, rows)
    np.testing.assert_allclose(actual.cosines, cosines, atol=1e-6)
    assert nearest(matrix, queries[:0], topn).rows.shape == (0, min(topn, n))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_of_equal_ones_the_earlier(monkeypatch, rows):
    """At the end of the list too, where some are left out, and in blocks that come in any order."""
    monkeypatch.setattr(search, "BLOCK_BYTES", 8 * rows)
    matrix = np.array([[0, 1], [1, 0], [2, 0], [0, 2], [3, 0]], np.float32)
    actual = nearest(matrix, np.array([[1, 0]], np.float32), 2)
    assert actual.rows.tolist() == [[1, 2]]
    best_last = np.array([[0, 1], [0, 2], [0, 3], [1, 0]], np.float32)
    assert nearest(best_last, np.array([[1, 0]], np.float32), 2).rows.tolist() == [[3, 0]]
    assert nearest(matrix, np.array([[0, 0]], np.float32), 3).rows.tolist() == [[0, 1, 2]]
    found = search.Search(np.array([[1, 0]], np.float32), 2)
    for first in reversed(range(0, 5, rows)):
        found.add(first, matrix[first : first + rows])
    assert found.nearest().rows.tolist() == [[1, 2]]


def test_no_neighbours_are_refused():
    with pytest.raises(ElmoFastError, match="topn must be 1 or more"):
        nearest(np.zeros((2, 3), np.float32), np.zeros((1, 3), np.float32), 0)


@pytest.fixture(scope="module")
def fifty():
    """w0 to w49, of unlike lengths."""
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((50, 8)) * rng.uniform(0.1, 9, (50, 1))
    return Vectors([f"w{i}" for i in range(50)], matrix.astype(np.float32))


def alike(actual, expected):
    """The same words in the same order, and cosines within rounding."""
    assert [word for word, _ in actual] == [word for word, _ in expected]
    assert [cosine for _, cosine in actual] == pytest.approx([cosine for _, cosine in expected], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "by_name"),
    [
        (("w3",), {}),
        ((["w3"],), {"topn": 5}),
        ((["w0", "w49"],), {}),
        ((), {"positive": ["w1", "w2"], "negative": ["w3"], "topn": 4}),
        ((["w1"], "w3", 50), {}),
        ((), {"negative": ["w7"]}),
    ],
)
def test_most_similar_is_gensims(fifty, arguments, by_name):
    """Its arguments, by place and by name, its words and its cosines; words of the query are left out."""
    pytest.importorskip("gensim", reason="gensim is not installed")
    actual = most_similar(fifty, *arguments, **by_name)
    alike(actual, fifty.to_gensim().most_similar(*arguments, **by_name))
    assert not {word for word, _ in actual} & {"w3" if by_name.get("negative") == ["w3"] else "none"}


def test_nearest_words_are_those_of_each_word_by_itself(fifty):
    for word, actual in zip(["w0", "w49"], nearest_words(fifty, ["w0", "w49"], 5), strict=True):
        alike(actual, most_similar(fifty, word, topn=5))
    assert nearest_words(fifty, []) == []


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda v: most_similar(v, ["W3"]), "'W3' has no vector; 'w3' has one"),
        (lambda v: most_similar(v), "positive or negative must have at least one word; got none"),
        (lambda v: most_similar(v, ["w1"], 5), "negative must be a word or a list of words; got 5"),
        (lambda v: most_similar(v, ["w1", 2]), r"positive\[1\] must be a word \(a string\); got 2"),
        (lambda v: most_similar(v, "w1", topn=0), "topn must be 1 or more; got 0"),
        (lambda v: nearest_words(v, ["w1"], 0), "topn must be 1 or more; got 0"),
    ],
)
def test_what_is_no_question_about_words(fifty, ask, sentence):
    with pytest.raises(ElmoFastError, match=sentence):
        ask(fifty)


LENGTHS = [3, 1, 0, 40, 7]


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    """Unit vectors [2, 51, D] of five sentences, and the cache of them, written in another order; blocks of 8 rows."""
    monkeypatch.setattr(search, "BLOCK_BYTES", 8 * 4 * 5)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2, sum(LENGTHS), 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    at = np.cumsum([0, *LENGTHS])
    with writing_cache_folder(tmp_path / "tokens", LENGTHS, 2, 5, "a text") as write:
        for i in (3, 0, 2, 4, 1):
            write(i, vectors[:, at[i] : at[i + 1]])
    return vectors, tmp_path / "tokens"


def test_a_cache_of_another_version_is_damage_and_another_folder_is_named(tokens):
    _, path = tokens
    content = (path / VECTORS).read_bytes()
    (path / VECTORS).write_bytes(content.replace(FORMAT.encode(), FORMAT.encode()[:-1] + b"1"))
    with pytest.raises(CheckpointError, match=f"{VECTORS}: damaged, or changed after it was written"):
        read_cache_folder(path)
    write_manifest(path)
    with pytest.raises(CheckpointError, match="written by another version"):
        read_cache_folder(path)
    (path / VECTORS).unlink()
    for other in (path, path.parent, path / "manifest.json"):
        with pytest.raises(ElmoFastError, match="is no folder of vectors"):
            read_cache_folder(other)
