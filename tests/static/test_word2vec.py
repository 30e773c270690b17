"""Training by gensim: its own vectors for its own settings, what is reported, and what is refused."""

import gzip
import importlib.util
import itertools
import random

import numpy as np
import pytest

from elmo_fast.errors import ElmoFastError, MissingExtraError
from elmo_fast.static import Vectors, train_glove, train_word2vec
from elmo_fast.static.word2vec import ALGORITHMS, OBJECTIVES, default_negative

needs_gensim = pytest.mark.skipif(importlib.util.find_spec("gensim") is None, reason="gensim is not installed")
SETTINGS = {"dimension": 12, "window": 3, "min_count": 2, "epochs": 3, "seed": 7, "sample": 0.0}


@pytest.fixture
def text(tmp_path):
    """Sentences about animals or about numbers, never both; "once" stands there once, and is left out."""
    rng = random.Random(0)
    topics = [["cat", "dog", "cow", "pig", "hen"], ["one", "two", "three", "four"]]
    lines = [" ".join(rng.choices(topic, k=12)) for _ in range(150) for topic in topics]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*lines, "once"]) + "\n")
    return path


@needs_gensim
@pytest.mark.parametrize(("algorithm", "objective"), list(itertools.product(ALGORITHMS, OBJECTIVES)))
def test_the_vectors_are_gensims(text, algorithm, objective):
    """Bit by bit those of Word2Vec with the settings that the names stand for; each epoch is reported."""
    from gensim.models import Word2Vec
    from gensim.models.word2vec import LineSentence

    arguments = {"corpus_file": str(text)} if objective == "ns" else {"sentences": LineSentence(text)}
    expected = Word2Vec(
        **arguments, vector_size=12, window=3, min_count=2, epochs=3, seed=7, workers=1, sample=0,
        sg=int(algorithm == "sg"), hs=int(objective == "hs"), negative=0 if objective == "hs" else 10,
    )  # fmt: skip
    seen = []
    for _ in range(2):
        actual = train_word2vec(text, algorithm=algorithm, objective=objective, report=seen.append, **SETTINGS)
        assert actual.words == expected.wv.index_to_key
        assert actual.matrix.tobytes() == expected.wv.vectors.tobytes()
    k = 10 if objective == "ns" else 0
    assert [epoch[:3] for epoch in seen] == 2 * [(1, 3, k), (2, 3, k), (3, 3, k)]
    assert all(e.words_per_second == pytest.approx(3601 / e.seconds) for e in seen)


def test_large_texts_need_fewer_random_words():
    assert [default_negative(words) for words in (10**7 - 1, 10**7, 10**9 - 1, 10**9)] == [10, 5, 5, 3]


@needs_gensim
def test_training_continues_from_vectors_over_the_most_frequent_words(text):
    """With steps too small to see, shared words keep their vectors; an explicit `negative` wins."""
    start, seen = Vectors(["cat", "one", "unseen"], np.eye(3, 12, dtype=np.float32)), []
    settings = {**SETTINGS, "learning_rate": 1e-9, "negative": 3, "max_vocab_size": 5}
    vectors = train_word2vec(text, **settings, init_from=start, report=seen.append)
    whole = train_word2vec(text, **SETTINGS)
    assert vectors.words == whole.words[:5]
    assert seen[0].negative == 3
    shared = [word for word in vectors.words if word in start]
    assert shared
    for word in shared:
        np.testing.assert_allclose(vectors.vector(word), start.vector(word), atol=0.01)


@needs_gensim
def test_folders_and_gzip_are_the_same_text(text, tmp_path):
    """So are a byte order mark, other line ends and other white space, which gensim's readers take for words."""
    whole = train_word2vec(text, **SETTINGS)
    strange = b"\xef\xbb\xbf" + text.read_bytes().replace(b"\n", b"\r\n").replace(b" ", b" \xc2\xa0")
    for data in (strange, gzip.compress(text.read_bytes())):
        (tmp_path / "other").write_bytes(data)
        other = train_word2vec(tmp_path / "other", **SETTINGS)
        assert other.words == whole.words
        assert np.array_equal(other.matrix, whole.matrix)
    folder = tmp_path / "parts"
    folder.mkdir()
    lines = text.read_bytes().splitlines(keepends=True)
    (folder / "0.txt").write_bytes(b"".join(lines[:100]))
    (folder / "1.txt.gz").write_bytes(gzip.compress(b"".join(lines[100:])))
    parts = train_word2vec(folder, **SETTINGS)
    assert parts.words == whole.words
    assert np.array_equal(parts.matrix, whole.matrix)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"algorithm": "glove"}, "algorithm must be one of sg, cbow; got 'glove'"),
        ({"dimension": 0}, "dimension must be 1 or more"),
    ],
)
def test_wrong_settings(text, settings, sentence):
    with pytest.raises(ElmoFastError, match=sentence):
        train_word2vec(text, **settings)


@needs_gensim
def test_wrong_texts(tmp_path, text):
    with pytest.raises(ElmoFastError, match="no word occurs min_count=5000 times; give a smaller"):
        train_word2vec(text, min_count=5000)
    with pytest.raises(ElmoFastError, match="no file matches"):
        train_word2vec(tmp_path / "absent")
    text.write_text("cat cat\n")
    with pytest.raises(ElmoFastError, match="sample=1e-09 dropped every word of the text"):
        train_word2vec(text, min_count=1, sample=1e-9)
    text.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(ElmoFastError, match=r"line 2, character 4: the byte 0xe9 is not UTF-8"):
        train_word2vec(text)


def test_without_gensim_it_is_said_what_to_install(text, monkeypatch):
    """One sentence."""
    monkeypatch.setitem(__import__("sys").modules, "gensim.models", None)
    with pytest.raises(MissingExtraError, match=r'Training word2vec needs gensim.*pip install "elmo-fast\[static\]"'):
        train_word2vec(text)


@needs_gensim
@pytest.mark.parametrize("train", [train_word2vec, train_glove])
def test_a_tokenizer_splits_the_text(tmp_path, train):
    """Read as if its words had been separated by spaces."""
    raw, split = tmp_path / "raw.txt", tmp_path / "split.txt"
    raw.write_text("The cat, the dog.\n" * 30)
    split.write_text("The cat , the dog .\n" * 30)
    settings = {"dimension": 4, "epochs": 1, "min_count": 1}
    vectors = train(str(raw), tokenizer="basic", **settings)
    assert vectors.words == train(str(split), **settings).words
    assert "," in vectors.words
