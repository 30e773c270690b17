"""cooccurrences: every pair within the window and the sentence, once, whatever threads, memory and parts."""

import fractions
import functools
import itertools
import tempfile
import unittest.mock
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_fast.ops import _native
from elmo_fast.static import cooccurrences as module
from elmo_fast.static.cooccurrences import BOUNDARY, LEFT_OUT, cooccurrences

native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
SMALLEST = 1 << 20


def counted(parts, words, num_words, window, symmetric=True):
    """{(row, column): X} by the definition, pair by pair, in exact arithmetic."""
    actual = Counter()
    for part in parts:
        sentence = []
        for word in words[part].tolist():
            if word == BOUNDARY:
                sentence = []
            elif word >= 0:
                for distance, before in enumerate(reversed(sentence[-window:]), 1):
                    weight = fractions.Fraction(1, distance)
                    actual[word, before] += weight
                    if symmetric:
                        actual[before, word] += weight
                sentence.append(word)
    return {cell: float(np.float32(float(value))) for cell, value in sorted(actual.items())}


def entries(actual):
    """Return the op's result, as `counted` has it; fail if an entry occurs twice or out of order."""
    assert (actual.rows.dtype, actual.columns.dtype, actual.values.dtype) == (torch.int32, torch.int32, torch.float32)
    cells = list(zip(actual.rows.tolist(), actual.columns.tolist(), strict=True))
    assert all(a < b for a, b in itertools.pairwise(cells))
    return dict(zip(cells, actual.values.tolist(), strict=True))


@st.composite
def texts(draw):
    """Parts, some empty, of numbers whose words are few, boundaries or left out."""
    num_words = draw(st.integers(1, 6))
    words = [draw(st.integers(LEFT_OUT, num_words - 1)) for _ in range(draw(st.integers(1, 9)))]
    parts = draw(st.lists(st.lists(st.integers(0, len(words) - 1), max_size=40), max_size=3))
    return [torch.tensor(part, dtype=torch.int32) for part in parts], torch.tensor(words, dtype=torch.int32), num_words


@pytest.mark.parametrize("extension", [pytest.param(_native.C, marks=native, id="C++"), pytest.param(None, id="torch")])
@given(text=texts(), window=st.sampled_from([1, 2, 3, 7, 20, 50, 255]), symmetric=st.booleans())
def test_every_pair_is_counted_once(extension, text, window, symmetric):
    with unittest.mock.patch.object(_native, "C", extension):
        actual = cooccurrences(*text, window=window, symmetric=symmetric, memory=SMALLEST)
    assert entries(actual) == pytest.approx(counted(*text, window, symmetric), rel=1e-6 if window > 20 else 0)


def zipf(count, num_words, seed=0):
    """A text of Zipf's law, a tenth boundaries, and its identity of words with two that are left out."""
    draw = np.random.default_rng(seed)
    ids = np.minimum(draw.zipf(1.2, count), num_words) - 1
    numbers = np.where(draw.random(count) < 0.1, num_words, ids).astype(np.int32)
    words = np.concatenate([np.arange(num_words), [BOUNDARY]]).astype(np.int32)
    words[[2, num_words - 1]] = LEFT_OUT
    return torch.from_numpy(numbers), torch.from_numpy(words)


@functools.cache
def long_text(symmetric):
    numbers, words = zipf(8_000, 900)
    return numbers, words, counted([numbers], words, 900, 10, symmetric)


@native
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("chunk", "record"), [(module.LONGEST_CHUNK, 8), (700, 8), (700, 100)])
def test_neither_threads_nor_memory_change_a_bit(monkeypatch, tmp_path, symmetric, threads, chunk, record):
    """In few chunks or many, whose runs are in memory or, where records are larger, in files."""
    numbers, words, truth = long_text(symmetric)
    files, new = [], tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **named: files.append(named) or new(**named))
    monkeypatch.setattr(module, "LONGEST_CHUNK", chunk)
    monkeypatch.setattr(module, "_BYTES", record)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        actual = cooccurrences([numbers], words, 900, symmetric=symmetric, memory=SMALLEST, folder=tmp_path)
    finally:
        torch.set_num_threads(before)
    assert entries(actual) == truth
    assert bool(files) == (record > 8)
    assert list(tmp_path.iterdir()) == []


@native
@pytest.mark.parametrize("num_words", [1, 2, 1000, 2**16 + 1, 2**22])
def test_vocabularies_of_any_size(num_words):
    """First and last word next to each other: keys of all widths, on either side of the table's edge."""
    words = torch.tensor([0, num_words - 1, BOUNDARY], dtype=torch.int32)
    numbers = torch.tensor([0, 1, 2, 1, 1, 0], dtype=torch.int32)
    actual = cooccurrences([numbers], words, num_words, window=2, memory=SMALLEST)
    assert entries(actual) == counted([numbers], words, num_words, 2)


@native
def test_progress_counts_to_the_end(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_CHUNK", 300)
    lines = []
    numbers, words = zipf(1000, 20)
    cooccurrences([numbers[:400], numbers[400:]], words, 20, progress=lambda *each: lines.append(each))
    assert lines == [(300, 1000), (400, 1000), (700, 1000), (1000, 1000)]


def counter(**changed):
    good = {
        "table": np.array([0, 1, BOUNDARY], np.int32), "weights": np.array([2, 1]), "num_words": 3, "symmetric": True,
        "most_cells": 0, "threads": 1,
    }  # fmt: skip
    return _native.C.CooccurrenceCounter(**good | changed)


TEXT = np.array([0, 1, 2, 1], np.int32)
RUN = np.array([1]), np.array([5])


@native
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: counter(num_words=0), ValueError, "num_words must be from 1 to"),
        (lambda: counter(num_words=2**27), ValueError, "num_words must be from 1 to"),
        (lambda: counter(num_words=1), ValueError, "table must hold words below num_words = 1"),
        (lambda: counter(weights=np.ones(256, np.int64)), ValueError, "weights must be 1 to 255; got 256"),
        (lambda: counter(threads=0), ValueError, "threads must be at least 1"),
        (lambda: counter(table=np.zeros(3)), TypeError, "incompatible"),
        (lambda: counter(table=np.zeros(6, np.int32)[::2]), TypeError, "incompatible"),
        (lambda: counter().count(TEXT + 1, 0, 4), IndexError, "numbers must lie from 0 to 2; got 3"),
        (lambda: counter().count(TEXT - 1, 0, 4), IndexError, "numbers must lie from 0 to 2; got -1"),
        (lambda: counter().count(TEXT + 1, 3, 4), IndexError, "numbers must lie from 0 to 2; got 3"),
        (lambda: counter().count(TEXT, 0, 5), ValueError, "begin and end must lie within numbers; got 0 and 5"),
        (lambda: counter().count(TEXT, -1, 2), ValueError, "begin and end must lie within numbers"),
        (lambda: counter().count(TEXT.astype(np.int64), 0, 4), TypeError, "incompatible"),
        (lambda: counter().merge([(RUN[0], np.array([1, 2]))], 1), ValueError, "keys and sums must be as many"),
        (lambda: counter().merge([(RUN[0] + 2, RUN[1])], 1), IndexError, "column 3 of 3 words"),
    ],
)
def test_memory_is_safe_where_the_kernels_are_called_alone(call, error, message):
    with pytest.raises(error, match=message):
        call()


@native
def test_keys_of_rows_that_are_none_are_left_out():
    """And falling keys, which no run has, end too."""
    assert counter().merge([(np.array([-1]), RUN[1])], 1)[2].tolist() == []
    assert counter().merge([(np.array([1, 1 << 40]), np.array([5, 7]))], 1)[2].tolist() == [5, 5]
    assert len(counter().merge([(np.array([4, 1]), np.array([5, 7]))], 1)[2]) <= 4
