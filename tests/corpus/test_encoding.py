"""Corpora in memory: how types are numbered, what is stored, and which corpora the fingerprint distinguishes."""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from elmo_fast.corpus import encode
from elmo_fast.text import Vocabulary
from tests.corpus.texts import TEXTS, VOCABULARY, resharded


def test_types_are_the_vocabulary_then_by_count_then_by_code_point():
    corpus = encode([["z", "a", "é", "z"], [], ["b", "𝄞", "￮", "c", "a"]], VOCABULARY)
    assert corpus.types.words() == ["b", "</S>", "<S>", "a", "<UNK>", "z", "c", "é", "￮", "𝄞"]
    assert corpus.counts.tolist() == [1, 0, 0, 2, 0, 2, 1, 1, 1, 1]
    (shard,), (starts,) = corpus.shards, corpus.starts
    assert shard.tolist() == [0, 6, 4, 8, 6, 0, 1, 10, 9, 7, 4, 0]
    assert starts.tolist() == [0, 5]
    assert (shard.dtype, starts.dtype, corpus.counts.dtype) == (np.uint32, np.uint64, np.uint64)
    assert (corpus.sentences, corpus.tokens, corpus.positions, corpus.unknown) == (2, 9, 11, 6)


@given(TEXTS)
def test_a_corpus_holds_the_text(text):
    corpus = encode(text, VOCABULARY)
    words = corpus.types.words()
    parts = np.split(corpus.shards[0][:-1], corpus.starts[0][1:].astype(int))
    assert [part[0] for part in parts] == [0] * corpus.sentences
    assert [[words[number - 1] for number in part[1:]] for part in parts] == text
    assert corpus.shards[0][-1] == 0
    counts = Counter(word for sentence in text for word in sentence)
    assert [counts[word] for word in words] == corpus.counts.tolist()
    assert corpus.unknown == sum(n for word, n in counts.items() if word not in VOCABULARY or word == "<UNK>")


@given(TEXTS, st.lists(st.integers(1, 11), max_size=5))
def test_places_of_sentences_in_any_number_of_shards(text, cuts):
    corpus = resharded(encode(text, VOCABULARY), cuts)
    end_to_end = np.concatenate(corpus.shards)
    order = np.random.default_rng(0).permutation(len(text))
    begins, lengths = corpus.places(order)
    words = corpus.types.words()
    for index, begin, length in zip(order, begins, lengths, strict=True):
        assert end_to_end[begin] == end_to_end[begin + length] == 0 or begin + length == len(end_to_end)
        assert [words[number - 1] for number in end_to_end[begin + 1 : begin + length]] == text[index]


TEXT = [["a", "c"], ["d"]]


@pytest.mark.parametrize(
    "other",
    [
        encode([["a"], ["c", "d"]], VOCABULARY),
        encode([["d"], ["a", "c"]], VOCABULARY),
        encode([["a", "c"], ["e"]], VOCABULARY),
        encode(TEXT, Vocabulary(["b", "<S>", "</S>", "a", "<UNK>"])),
        encode(TEXT, Vocabulary([*VOCABULARY.words, "c"])),
    ],
    ids=["sentence ends", "order", "word", "vocabulary", "size of the vocabulary"],
)
def test_the_fingerprint_tells_what_decides_on_batches(other):
    """The last one has equal types and numbers, and only the size of the vocabulary is another."""
    corpus = encode(TEXT, VOCABULARY)
    assert corpus.fingerprint == encode([*TEXT, []], VOCABULARY).fingerprint != other.fingerprint
    assert resharded(corpus, [1]).fingerprint == corpus.fingerprint


def test_the_fingerprint_tells_where_words_end():
    first, second = (encode([words], VOCABULARY) for words in (["xy", "z"], ["x", "yz"]))
    assert np.array_equal(first.types.data, second.types.data)
    assert first.fingerprint != second.fingerprint
