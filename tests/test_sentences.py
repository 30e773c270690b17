"""Sentences of every kind that callers pass, at every entry point: read alike, or refused in one sentence."""

import io

import numpy as np
import pytest

from elmo_fast import BiLM, ElmoEmbedder, Vocabulary, batch_to_ids
from elmo_fast.compat.tensorflow_hub import Module
from elmo_fast.corpus import encode
from elmo_fast.embed.token_vectors import TokenVectors
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import averaged_vectors
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.run import SavedTask
from elmo_fast.text import count_words
from elmo_fast.tokens import TextTokens
from tests.support.weights import make_weights

pandas = pytest.importorskip("pandas", reason="needs pandas, which is not installed")
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "so", "do", "I"])
NAN = float("nan")
TABLE = pandas.DataFrame({"text": ["so do I"], "label": [1]})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of characters and one of words."""
    folder = tmp_path_factory.mktemp("models")
    make_weights(folder / "characters")
    make_weights(folder / "words", words=len(VOCABULARY))
    VOCABULARY.write(folder / "words" / "vocab.txt")
    return folder


@pytest.fixture(scope="module")
def embedder(folders):
    return ElmoEmbedder.from_pretrained(folders / "characters")


@pytest.fixture(scope="module")
def words_bilm(folders):
    return BiLM(folders / "words", stateful=False)


def vectorizer(bilm):
    pytest.importorskip("sklearn", reason="needs scikit-learn, which is not installed")
    from elmo_fast.integrations.sklearn import ElmoVectorizer

    return ElmoVectorizer(bilm)


def sentence_transformer(bilm):
    pytest.importorskip("sentence_transformers", reason="needs sentence-transformers, which is not installed")
    from elmo_fast.integrations.sentence_transformers import ElmoTokens

    return ElmoTokens(bilm)


# The functions that take sentences x, with an embedder e and the biLM w of a model of words.
OF_TEXTS = {
    "encode": lambda e, w, x: e.encode(x),
    "encode to pandas": lambda e, w, x: e.encode(x, output="pandas"),
    "index": lambda e, w, x: e.index(x),
    "search": lambda e, w, x: e.index(["so"]).search(x),
    "ElmoVectorizer": lambda e, w, x: vectorizer(e.elmo_bilm).transform(x),
    "sentence-transformers": lambda e, w, x: sentence_transformer(e.elmo_bilm).preprocess(x),
    "tensorflow_hub": lambda e, w, x: Module(e.elmo_bilm)(x),
    "embed_file": lambda e, w, x: e.embed_file(x, "unwritten.npz"),
    "predict": lambda e, w, x: SavedTask(None, TaskConfig(train_path="a.conllu"), None).predict(x),
}
OF_WORDS = {
    "embed_sentences": lambda e, w, x: list(e.embed_sentences(x)),
    "embed_batch": lambda e, w, x: e.embed_batch(x),
    "batch_to_embeddings": lambda e, w, x: e.batch_to_embeddings(x),
    "TokenVectors": lambda e, w, x: list(TokenVectors(e.elmo_bilm)(x)),
    "batch_to_ids": lambda e, w, x: batch_to_ids(x),
    "batch_to_ids of words": lambda e, w, x: w.batch_to_ids(x),
    "TextTokens": lambda e, w, x: TextTokens(e, x),
    "averaged_vectors": lambda e, w, x: averaged_vectors(w, x),
    "count_words": lambda e, w, x: count_words(x),
    "corpus.encode": lambda e, w, x: encode(x, VOCABULARY),
}
# Inputs without sentences, and their errors.
REFUSED = {
    "a table": (TABLE, r"got a table: pass one column, table\[NAME\]"),
    "a dictionary": ({"text": [["I"]]}, r"got a table: pass one column, table\[NAME\]"),
    "a set": ({("so", "do"), ("I",)}, "got a set, which has no order: pass a list"),
    "a number": (5, "got 5"),
    "None": (None, "got None"),
    "NaN": (NAN, r'got nan .*fillna\(""\)'),
    "bytes": (b"so do I", r"got b'so do I': decode bytes, value.decode\(\)"),
    "an array of 0 dimensions": (np.array("so do I"), r"got an array of shape \[\]"),
    "an array of 2": (np.array([["so do I"], ["I"]]), r"shape \[2, 1\]: pass one column, array\[:, 0\]"),
    "numbers": ([1.5], r"\[0\] must be .* got 1.5"),
    "an array with NaN": (np.array([NAN], object), r'\[0\] must be .* got nan .*fillna\(""\)'),
    "a Series with NA": (pandas.Series([pandas.NA]), r"\[0\] must be .* got <NA>"),
    "texts in bytes": ([b"so do I"], r"\[0\] must be .* decode bytes"),
    "words in bytes": ([[b"so"]], r"\[0\].* (decode bytes|got \[b'so'\])"),
    "lists of lists": ([[["so", "do"]]], r"\[0\].* got \[.*'so', 'do'"),
    "tables": ([TABLE], r"\[0\] must be .* got a table"),
    "sets": ([{"so", "do"}], r"\[0\] must be .* got a set"),
    "a string": ("so do I", "must be a list of sentences, each a list of words"),
    "a string in a list": ([["so"], "do I"], r"\[1\] must be a list of words"),
    "generators": ([(word for word in ["so"])], r"\[0\] must be .* got <generator"),
}


# One check is behind all entry points: each meets a container, an element and neither; two meet everything.
EVERYWHERE = ("a table", "a number", "texts in bytes")
ENTRIES = [(entry, kind) for entry in OF_TEXTS | OF_WORDS for kind in EVERYWHERE]
ENTRIES += [(entry, kind) for entry in OF_WORDS for kind in ("a string", "a string in a list")]
ENTRIES += [
    (entry, kind)
    for entry in ("encode", "embed_batch")
    for kind in REFUSED
    if kind not in EVERYWHERE and "a string" not in kind
]


@pytest.mark.parametrize(("entry", "kind"), ENTRIES)
def test_what_holds_no_sentences_is_refused(embedder, words_bilm, tmp_path, monkeypatch, entry, kind):
    monkeypatch.chdir(tmp_path)
    value, message = REFUSED[kind]
    with pytest.raises(ElmoFastError, match=message):
        (OF_TEXTS | OF_WORDS)[entry](embedder, words_bilm, value)
    assert not list(tmp_path.iterdir())


TEXTS, WORDS = ["so do I", "", "I"], [["so", "do", "I"], [], ["I"]]
READ_ALIKE = {
    "a tuple": tuple,
    "a Series": lambda items: pandas.Series(items, index=[7, 3, 3]),
    "an array": lambda items: pandas.Series(items).to_numpy(),
    "a generator": iter,
    "a column of a dictionary": lambda items: dict(enumerate(items)).values(),
}


@pytest.mark.parametrize("kind", READ_ALIKE)
def test_every_other_container_gives_the_vectors_of_a_list(embedder, words_bilm, kind):
    expected = embedder.encode(TEXTS)
    for sentences in (TEXTS, WORDS):
        np.testing.assert_array_equal(embedder.encode(READ_ALIKE[kind](sentences)), expected)
    for entry in ("embed_batch", "embed_sentences", "TokenVectors"):
        actual, listed = (OF_WORDS[entry](embedder, None, x) for x in (READ_ALIKE[kind](WORDS), WORDS))
        assert all(map(np.array_equal, actual, listed)), entry
        assert len(actual) == 3
    for entry in ("batch_to_ids", "batch_to_ids of words", "count_words"):
        actual, listed = (OF_WORDS[entry](embedder, words_bilm, x) for x in (READ_ALIKE[kind](WORDS), WORDS))
        assert np.array_equal(actual, listed), entry


@pytest.mark.parametrize("value", ["so do I", TABLE, np.array([["so"]]), ["so", None], 5, {"so"}])
def test_what_is_no_single_sentence(embedder, value):
    with pytest.raises(ElmoFastError, match=r"sentence(\[1\])? must be a"):
        embedder.embed_sentence(value)


def test_a_stream_of_bytes_is_refused(embedder, tmp_path):
    with pytest.raises(ElmoFastError, match=r"the input\[0\] must be a string; got b'so do I"):
        embedder.embed_file(io.BytesIO(b"so do I\n"), tmp_path / "out.npz")


def test_a_table_of_vectors_has_the_index_of_its_series(embedder, tmp_path):
    """So that it joins the table that the Series is a column of; its columns have names that Parquet takes."""
    texts = pandas.Series(TEXTS, index=[7, 3, 5], name="text")
    table = embedder.encode(texts, output="pandas")
    joined = texts.to_frame().join(table)
    np.testing.assert_array_equal(joined.iloc[:, 1:].to_numpy(), embedder.encode(TEXTS))
    assert pandas.concat([texts, table], axis=1).equals(joined)
    pytest.importorskip("pyarrow", reason="needs pyarrow, which is not installed")
    for each in (table, embedder.encode(TEXTS, output="pandas")):
        each.to_parquet(tmp_path / "vectors.parquet")
        pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "vectors.parquet"), each)
