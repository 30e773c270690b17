"""Types as bytes and their characters, against CharacterTable, which spells words out."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given

from elmo_fast.corpus import TypeTable
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import CharacterTable, characters

WORDS = st.lists(
    st.one_of(st.text(max_size=12), st.sampled_from(["<S>", "</S>", "<UNK>", "a" * 48, "a" * 47 + "é", "x" * 99])),
    min_size=1,
    max_size=12,
)


@given(WORDS, st.integers(3, 50), st.data())
@example(["", "\ud800", "<S>", "</S>", "<s>"], 3, None)
def test_characters_are_those_of_the_character_table(words, max_characters, data):
    """For any words, slots and shape of the asking tensor; marker rows of <S> and </S> wherever they stand."""
    rows = np.arange(len(words)).repeat(2).reshape(-1, 2)
    if data is not None:
        rows = np.array(data.draw(st.lists(st.integers(0, len(words) - 1), max_size=6)), np.int64)
    table = TypeTable.of(["<S>", *words])
    ids = table.characters(max_characters).ids(torch.from_numpy(rows + 1))
    assert ids.dtype == torch.int64
    expected = CharacterTable(["<S>", *words], max_characters)
    np.testing.assert_array_equal(ids.numpy(), expected.ids(rows + 1))


def test_large_tables_are_made_part_by_part(monkeypatch):
    words = [f"{'x' * (i % 9)}{i}" for i in range(100)] + ["</S>"]
    whole = TypeTable.of(words).characters(8)
    monkeypatch.setattr(characters, "_WORDS_AT_ONCE", 7)
    parts = TypeTable.of(words).characters(8)
    numbers = torch.arange(len(words))
    assert torch.equal(whole.ids(numbers), parts.ids(numbers))
    assert whole.ids(numbers)[-1].tolist() == [259, 258, 260, *[261] * 5]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=9))
def test_words_come_back(words):
    table = TypeTable.of(words)
    assert len(table) == len(words)
    assert table.words() == words
    assert table.words(range(len(words))[::-1]) == words[::-1]


def test_absent_types_and_too_few_slots_are_named():
    table = TypeTable.of(["a", "b"])
    for wrong in (-1, 2):
        with pytest.raises(IndexError, match="from 0 to 1"):
            table.words([wrong])
    with pytest.raises(ElmoFastError, match=r"max_characters must be 3 or more.*got 2"):
        table.characters(2)
