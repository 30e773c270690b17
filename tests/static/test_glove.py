"""train_glove: the loss falls as in float64, words of like contexts are neighbours, every kind of text is the same."""

import os
import random

import numpy as np
import pytest
import torch

from elmo_fast.corpus import encode, prepare
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native
from elmo_fast.static import Vectors, train_glove
from elmo_fast.static.glove import SLICE
from elmo_fast.text import Vocabulary

GROUPS = {
    "animals": ["cat", "dog", "horse", "cow"],
    "cities": ["Paris", "Rome", "Berlin", "Oslo"],
    "colours": ["red", "green", "blue", "grey"],
}
FRAMES = {
    "animals": ["the {} eats grass and sleeps", "a hungry {} runs after its tail", "she feeds the old {} every day"],
    "cities": ["they travel to {} by train", "in {} the streets are wide", "he lives far from {} and its river"],
    "colours": ["her dress was {} like paint", "a {} wall with bright lamps", "mix {} paint with white for this wall"],
}


def sentences(count=3000):
    draw = random.Random(0)
    corpus = []
    for _ in range(count):
        group = draw.choice(list(GROUPS))
        corpus.append(draw.choice(FRAMES[group]).format(draw.choice(GROUPS[group])).split())
    return corpus


SMALL = {"dimension": 12, "min_count": 2, "window": 5, "x_max": 10.0, "epochs": 12, "threads": 1}


def nearest(vectors, word):
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    order = np.argsort(-unit @ unit[vectors.index[word]])
    return [vectors.words[i] for i in order[1:]]


def test_words_are_by_falling_count_and_rare_ones_left_out():
    text = [["b", "a", "c", "b"], ["c", "a", "b", "rare"], ["a", "é", "é", "d", "d"]]
    assert train_glove(text, **SMALL).words == ["a", "b", "c", "d", "é"]
    assert train_glove(text, **SMALL, max_vocab_size=3).words == ["a", "b", "c"]


def test_w_and_the_contexts_are_parted():
    """w + w~ is more than w; both start from half of `init_from`, where no step moves them, w alone from the whole."""
    assert not np.allclose(
        train_glove(sentences(50), **SMALL, add_contexts=False).matrix, train_glove(sentences(50), **SMALL).matrix
    )
    start = Vectors(["cat", "unseen", "grass"], np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32))
    for add_contexts in (True, False):
        settings = {**SMALL, "learning_rate": 1e-9, "epochs": 1, "add_contexts": add_contexts}
        vectors = train_glove(sentences(50), **settings, init_from=start)
        for word in ("cat", "grass"):
            np.testing.assert_allclose(vectors.vector(word), start.vector(word), atol=1e-6)
        assert "unseen" not in vectors
        assert abs(vectors.vector("the")).max() < 0.1


@pytest.mark.parametrize(
    ("words", "width", "message"),
    [("cat", 11, "dimension must be 11, as init_from"), ("unseen", 12, "init_from must have a vector for some word")],
)
def test_vectors_that_cannot_be_continued_are_refused(words, width, message):
    with pytest.raises(ElmoFastError, match=message):
        train_glove(sentences(50), **SMALL, init_from=Vectors([words], np.ones((1, width), np.float32)))


@pytest.mark.filterwarnings("ignore::elmo_fast.errors.PerformanceWarning")
def test_the_loss_curve_is_that_of_the_definitions(monkeypatch):
    """In C++ on one thread as in plain torch, from counting to w + w~; the loss falls."""
    settings, results = {**SMALL, "epochs": 5, "seed": 3}, []
    for _ in range(2):
        epochs = []
        vectors = train_glove(sentences(150), **settings, report=epochs.append)
        results.append((vectors.matrix, [epoch.loss for epoch in epochs]))
        assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5]
        monkeypatch.setattr(_native, "C", None)
        monkeypatch.setattr(_native, "WHY_NOT", "no extension")
    (matrix, losses), (expected, curve) = results
    np.testing.assert_allclose(losses, curve, rtol=1e-4)
    np.testing.assert_allclose(matrix, expected, atol=2e-5)
    assert losses[-1] < 0.7 * losses[0]


def test_a_seed_gives_the_same_vectors_on_one_thread():
    first, again, other = (train_glove(sentences(200), **SMALL, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.matrix, again.matrix)
    assert not np.array_equal(first.matrix, other.matrix)


@pytest.mark.parametrize("kind", ["file", "glob", "corpus", "prepared", "generator"])
def test_every_kind_of_text_is_the_same(tmp_path, kind):
    """Bit by bit that of sentences: a line a sentence, blank lines none, words of a vocabulary and outside it."""
    text = sentences(200)
    expected = train_glove(text, **SMALL)
    lines = [" ".join(sentence) for sentence in text]
    if kind == "glob":
        (tmp_path / "part-0").write_text("\n".join(lines[:120]) + "\n\n")
        (tmp_path / "part-1").write_text("\n" + "\n".join(lines[120:]))
        source = os.fspath(tmp_path / "part-*")
    elif kind == "corpus":
        source = encode(text, Vocabulary(["<S>", "</S>", "<UNK>", "cat", "grass", "unseen"]))
    elif kind == "generator":
        source = (sentence for sentence in text)
    else:
        source = tmp_path / "text.txt"
        source.write_text("\n".join(lines))
    if kind == "prepared":
        prepare(os.fspath(source), tmp_path / "prepared", max_vocab_size=10, processes=1)
        source = tmp_path / "prepared"
    actual = train_glove(source, **SMALL)
    assert actual.words == expected.words
    assert np.array_equal(actual.matrix, expected.matrix)


def test_threads_are_put_back_and_progress_is_told():
    """Of twelve words that share frames in fours, the nearest belong to the same four. torch's number
    of threads stays."""
    before, lines = torch.get_num_threads(), []
    vectors = train_glove(
        sentences(), **{**SMALL, "threads": 2, "epochs": 30}, progress=lambda *each: lines.append(each)
    )
    assert torch.get_num_threads() == before
    of_groups = [word for word in nearest(vectors, "Rome") if any(word in group for group in GROUPS.values())]
    assert set(of_groups[:3]) == {"Paris", "Berlin", "Oslo"}
    assert [stage for stage, _, _ in lines] == ["counting"] + ["training"] * 30
    assert all(done == total for _, done, total in (lines[0], lines[-1]))
    assert lines[-1][2] < 30 * SLICE


BAD = [
    ({"dimension": 0}, "dimension must be 1 or more; got 0"),
    ({"threads": 0}, "threads must be 1 or more; got 0"),
    ({"max_vocab_size": 0}, "max_vocab_size must be 1 or more; got 0"),
    ({"min_count": 10**6}, "the text: no word occurs min_count=1000000 times; give a smaller"),
    ({"x_max": -1.0}, "learning_rate and x_max must be above 0"),
    ({"learning_rate": 1e30}, "the loss became nan; give a learning_rate below"),
    ({"text": [["a"], ["b"], ["a"], ["b"]]}, "the text: no two words occur near each other"),
    ({"text": ["a b", "c d"]}, r"sentences\[0\] must be a list of words .*; got the string 'a b'"),
    ({"text": "no/such/file"}, "no/such/file: no file matches"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments_say_what_was_wanted(change, message):
    with pytest.raises(ElmoFastError, match=message):
        train_glove(**{"text": sentences(100), **SMALL, **change})
