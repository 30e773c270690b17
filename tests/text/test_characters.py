"""Words to character ids, against a reference that spells out one character at a time."""

import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given

from elmo_fast.errors import ElmoFastError
from elmo_fast.text import CharacterTable, batch_to_ids, characters, words_to_ids
from elmo_fast.text.characters import TypeTable

# Any code point, lone surrogates included, with enough markers and multi-byte characters to meet the corners.
WORDS = st.one_of(
    st.text(max_size=70),
    st.text(st.characters(categories=["Cs", "Lo", "So"]), max_size=30),
    st.sampled_from(["<S>", "</S>", "<UNK>", "", "\ud800", "a" * 47 + "é", "a" * 48, "a" * 49, "\0"]),
)
SENTENCES = st.lists(WORDS, max_size=6)


def spelled(word, max_characters=50):
    """Raw ids of one word, one character at a time (256 BOS, 257 EOS, 258 BOW, 259 EOW, 260 PAD)."""
    if word == "<S>":
        characters = [256]
    elif word == "</S>":
        characters = [257]
    else:
        characters = []
        for character in word:
            if not 0xD800 <= ord(character) <= 0xDFFF:
                characters.extend(character.encode("utf-8"))
        characters = characters[: max_characters - 2]
    row = [258, *characters, 259]
    while len(row) < max_characters:
        row.append(260)
    return row


def spelled_batch(batch):
    """Prediction ids of a batch: raw ids + 1, padding tokens all zero."""
    longest = max([len(sentence) for sentence in batch], default=0)
    ids = torch.zeros(len(batch), longest, 50, dtype=torch.int64)
    for i, sentence in enumerate(batch):
        for j, word in enumerate(sentence):
            ids[i, j] = torch.tensor(spelled(word)) + 1
    return ids


@given(st.lists(SENTENCES, max_size=5))
@example([])
@example([[]])
@example([[], ["a"], []])
@example([["<S>", "</S>", "<s>", "<UNK>"]])
@example([["a" * 47 + "é", "x" * 10_000, "a\ud83db"]])
def test_batch_to_ids_equals_the_spelled_out_reference(batch):
    ids = batch_to_ids(batch)
    assert ids.dtype == torch.int64
    assert torch.equal(ids, spelled_batch(batch))


@given(st.lists(WORDS, max_size=20), st.sampled_from([3, 4, 10, 50]), st.sampled_from([261, 262]))
def test_words_to_ids_equals_the_spelled_out_reference(words, max_characters, n_characters):
    ids = words_to_ids(words, n_characters, max_characters)
    expected = [[c + n_characters - 261 for c in spelled(word, max_characters)] for word in words]
    assert ids.shape == (len(words), max_characters)
    assert ids.tolist() == expected


@given(st.lists(WORDS, min_size=1, max_size=10), st.integers(3, 50))
@example(["", "\ud800", "<S>", "</S>", "<s>"], 3)
def test_types_on_a_device_have_the_characters_of_their_words(words, max_characters):
    rows = torch.arange(len(words)).repeat(2, 1)
    ids = TypeTable.of(words).characters(max_characters)(rows)
    assert ids.dtype == torch.int64
    assert ids.tolist() == [[[c + 1 for c in spelled(word, max_characters)] for word in words]] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_characters_on_a_gpu_wait_for_nothing():
    table, types = TypeTable.of(["a", "<S>", "longer"]), torch.arange(3, device="cuda").view(1, -1)
    actual = table.characters(9, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        ids = actual(types)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(ids.cpu(), table.characters(9)(types.cpu()))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=9))
def test_the_words_of_a_table_come_back(words):
    table = TypeTable.of(words)
    assert len(table) == len(words)
    assert table.words() == words
    assert table.words(range(len(words))[::-1]) == words[::-1]
    for wrong in (-1, len(words)):
        with pytest.raises(IndexError, match="types are numbered from 0 to"):
            table.words([wrong])


def test_a_word_spelled_out_by_hand():
    """ "Aé" in a batch with a shorter sentence: BOW 259, bytes + 1, EOW 260, PAD 261; the missing token is zeros."""
    ids = batch_to_ids([["Aé", "b"], ["<S>"]])
    assert ids.shape == (2, 2, 50)
    assert ids[0, 0].tolist() == [259, 66, 196, 170, 260] + [261] * 45
    assert ids[1, 0].tolist() == [259, 257, 260] + [261] * 47
    assert ids[1, 1].tolist() == [0] * 50


@pytest.mark.parametrize("call", [lambda: words_to_ids(["a"], 260), lambda: CharacterTable(["a"], 2)])
def test_wrong_counts_are_refused(call):
    with pytest.raises(ElmoFastError):
        call()


def test_words_that_are_cut_are_counted_once():
    """Bytes and lexicons."""
    long = ["x" * 49, "x" * 48 + "y", "short"]
    characters._units_warned_of.clear()
    with pytest.warns(UserWarning, match=r"2 of 3 different words are longer than 48 bytes of UTF-8.* 'xxx"):
        batch_to_ids([long])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch_to_ids([long])
        characters._units_warned_of.clear()
        batch_to_ids([long[1:], [*long, *map(str, range(200))]])  # one is like no other; two of 203 are rulers
    lexicon = characters.LexiconSpelling(
        [characters.BEGIN, characters.END, "<eow>", "<bow>", "<oov>", "<pad>", "x"], [], 3
    )
    with pytest.warns(UserWarning, match="2 of 3 different words are longer than 3 characters"):
        lexicon.rows(["xxxx", "xxx", "xxxxx"])
