"""Prepared folders: the corpus that reading the text gives, whatever the pieces, processes and shards."""

import functools
import gzip
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.corpus import count_words_of, encode, is_prepared, open_corpus, pieces, read_corpus, word_counts
from elmo_fast.corpus import (
    prepare as prepare_text,
)
from elmo_fast.corpus.folder import renumbered
from elmo_fast.corpus.streams import Stream
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary, count_words
from tests.corpus.test_streams import all_batches, equal
from tests.corpus.texts import TEXTS, VOCABULARY

prepare = functools.partial(prepare_text, min_count=1)


def write(path, text):
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in text), encoding="utf-8")
    return str(path)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


def long_text(lines=3000):
    return [[f"w{i * j % 97}" for j in range(i % 9 + 1)] for i in range(lines)]


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of some lines, and a process for each."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 5000)
    monkeypatch.setattr(word_counts, "BYTES_PER_PROCESS", 1)


@settings(max_examples=30)
@given(TEXTS, st.integers(1, 40), st.integers(3, 30))
def test_a_prepared_folder_holds_what_encoding_gives(tmp_path_factory, text, piece, shard_tokens):
    """The same fingerprint, so the same types and sentences, and counts, for any pieces and shards."""
    folder = tmp_path_factory.mktemp("prepared")
    source = write(folder / "text.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", piece)
        prepared_corpus = prepare(source, folder / "out", vocabulary=VOCABULARY, processes=1, shard_tokens=shard_tokens)
    expected, opened = encode(text, VOCABULARY), open_corpus(folder / "out")
    for corpus in (prepared_corpus, opened):
        assert corpus.fingerprint == expected.fingerprint
        assert np.array_equal(corpus.counts, expected.counts)
        sizes = corpus.sentences, corpus.tokens, corpus.unknown
        assert sizes == (expected.sentences, expected.tokens, expected.unknown)
        for shard, starts in zip(corpus.shards, corpus.starts, strict=True):
            assert len(shard) <= shard_tokens or len(starts) == 1
            assert np.array_equal(np.flatnonzero(shard == 0)[:-1], starts)
            assert (shard.dtype, starts.dtype) == (np.uint32, np.uint64)
        assert all(map(equal, all_batches(Stream(corpus, 3, 4, seed=1)), all_batches(Stream(expected, 3, 4, seed=1))))


def test_files_and_folders_of_text_are_read_alike(tmp_path):
    text = long_text(300)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("\ufeff" + "".join(" ".join(s) + "\r\n\n" for s in text[:100]))
    (tmp_path / "texts" / "b.gz").write_bytes(gzip.compress("\n".join(" ".join(s) for s in text[100:]).encode()))
    (tmp_path / "texts" / "c.txt").write_text("")
    (tmp_path / "texts" / ".hidden").write_bytes(b"\0")
    vocabulary = Vocabulary.build(count_words(text), 3)
    corpus = prepare(str(tmp_path / "texts"), tmp_path / "out", min_count=3, processes=1)
    assert corpus.vocabulary.words == vocabulary.words
    assert corpus.fingerprint == encode(text, vocabulary).fingerprint
    assert read_corpus(str(tmp_path / "texts" / "*"), vocabulary).fingerprint == corpus.fingerprint
    assert os.listdir(tmp_path) == ["texts", "out"] or os.listdir(tmp_path) == ["out", "texts"]


@pytest.mark.usefixtures("small_pieces")
def test_the_number_of_processes_changes_no_byte(tmp_path):
    source = write(tmp_path / "text.txt", long_text())
    alone = prepare(source, tmp_path / "one", max_vocab_size=50, processes=1, shard_tokens=4000)
    several = prepare(source, tmp_path / "three", max_vocab_size=50, processes=3, shard_tokens=4000)
    assert len(alone.shards) > 2
    assert len(alone.vocabulary) == 50
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    assert several.fingerprint == alone.fingerprint


@pytest.mark.usefixtures("small_pieces")
def test_words_are_counted_alike_in_any_number_of_processes(tmp_path):
    """The strings of the markers are words like others."""
    text = [*long_text(), ["<S>", "a", "</S>"], ["<UNK>", "<UNK>"]]
    source = write(tmp_path / "text.txt", text)
    assert count_words_of(source, 1) == count_words_of(source, 3) == count_words(text)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(
    ("bad", "message"),
    [(b"caf\xe9", "line 2501, character 4: the byte 0xe9 is not UTF-8"), (b"\0", "line 2501: contains a NUL byte")],
)
def test_a_bad_line_in_a_late_piece_is_named_by_its_number_in_the_file(tmp_path, processes, bad, message):
    lines = [" ".join(sentence).encode() for sentence in long_text()]
    (tmp_path / "text.txt").write_bytes(b"\n".join([*lines[:2500], bad, *lines[2500:]]))
    with pytest.raises(ElmoFastError, match=r"text\.txt, " + message):
        prepare(str(tmp_path / "text.txt"), tmp_path / "out", processes=processes)
    with pytest.raises(ElmoFastError, match=r"text\.txt, " + message):
        count_words_of(str(tmp_path / "text.txt"), processes)
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.mark.usefixtures("small_pieces")
def test_progress_is_told_in_bytes_and_words(tmp_path):
    text, lines = long_text(), []
    source = write(tmp_path / "text.txt", text)
    prepare(source, tmp_path / "out", processes=1, progress=lambda *numbers: lines.append(numbers))
    size = os.path.getsize(source)
    assert len(lines) == -(-size // 5000)
    assert lines == sorted(lines)
    assert lines[-1] == (size, size, sum(map(len, text)))


def test_meta_json_tells_what_there_is(tmp_path):
    prepare(write(tmp_path / "text.txt", [["a", "b"], ["c"]]), tmp_path / "out", max_vocab_size=4, processes=1)
    meta = json.loads((tmp_path / "out" / "meta.json").read_text())
    facts = {name: meta[name] for name in ("version", "sentences", "tokens", "types", "vocabulary", "shards")}
    assert facts == {"version": 2, "sentences": 2, "tokens": 3, "types": 6, "vocabulary": 4, "shards": 1}
    files = json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]
    assert sorted([*files, "manifest.json"]) == sorted(os.listdir(tmp_path / "out"))
    assert (tmp_path / "out" / "vocab.txt").read_text() == "<S>\n</S>\n<UNK>\na\n"
    assert np.load(tmp_path / "out" / "ids-00000.npy").tolist() == [0, 4, 5, 0, 6, 0]
    assert np.load(tmp_path / "out" / "starts-00000.npy").tolist() == [0, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": 0}, "min_count must be 1 or more; got 0"),
        ({"max_vocab_size": 3}, "max_vocab_size counts <S>, </S> and <UNK>, and must be 4 or more; got 3"),
        ({"shard_tokens": 0}, "shard_tokens must be 1 or more; got 0"),
        ({"processes": 0}, "processes must be 1 or more; got 0"),
        ({"tokenizer": str.split}, "tokenizer must be one of whitespace, .*; got <method 'split'"),
        ({"vocabulary": Vocabulary(["<S>", "a", "</S>", "<UNK>", "a"])}, "the vocabulary has the word 'a' twice"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(tmp_path, options, message):
    source = write(tmp_path / "text.txt", [["a"]])
    with pytest.raises(ElmoFastError, match=message):
        prepare(source, tmp_path / "out", **options)
    assert os.listdir(tmp_path) == ["text.txt"]


def test_text_without_words_is_refused(tmp_path):
    for text in ("", "\n \n"):
        (tmp_path / "text.txt").write_text(text)
        with pytest.raises(ElmoFastError, match="contains no words"):
            prepare(str(tmp_path / "text.txt"), tmp_path / "out")
        for read in (count_words_of, functools.partial(read_corpus, vocabulary=VOCABULARY)):
            with pytest.raises(ElmoFastError, match="contains no words"):
                read(str(tmp_path / "text.txt"))
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.fixture
def prepared(tmp_path):
    """A text file and the folder that was prepared of it."""
    source = write(tmp_path / "text.txt", [["a", "b"], ["c"]])
    prepare(source, tmp_path / "out", processes=1)
    return source, tmp_path / "out"


def test_the_same_again_is_left_as_it_is(prepared):
    source, folder = prepared
    before = {name: os.stat(folder / name) for name in os.listdir(folder)}
    assert prepare(source, folder, processes=1).fingerprint == open_corpus(folder).fingerprint
    assert {name: os.stat(folder / name).st_ino for name in os.listdir(folder)} == {
        name: state.st_ino for name, state in before.items()
    }


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ([["a", "b"], ["c", "a"]], {"min_count": 2}, "min_count was 1, now 2"),
        ([["a", "b"], ["c"]], {"vocabulary": VOCABULARY}, "vocab_file was None, now"),
        ([["a", "b"], ["c", "d"]], {}, "bytes of text was 6, now 8"),
        ([["a", "b"], ["d"]], {}, "corpus of another text"),
    ],
)
def test_another_corpus_is_not_replaced_unless_told(prepared, text, options, message):
    source, folder = prepared
    write(folder.parent / "text.txt", text)
    before = contents(folder)
    with pytest.raises(ElmoFastError, match=f"exists already.*{message}.*--overwrite"):
        prepare(source, folder, processes=1, **options)
    assert contents(folder) == before
    corpus = prepare(source, folder, processes=1, overwrite=True, **options)
    assert corpus.fingerprint == open_corpus(folder).fingerprint == encode(text, corpus.vocabulary).fingerprint
    assert sorted(os.listdir(folder.parent)) == ["out", "text.txt"]


def test_a_damaged_folder_is_replaced_when_told(prepared):
    source, folder = prepared
    (folder / "meta.json").write_bytes((folder / "meta.json").read_bytes()[:90])
    with pytest.raises(ElmoFastError, match=r"meta\.json: damaged"):
        prepare(source, folder, processes=1)
    own = folder / "my-labels.npy"
    own.write_bytes(b"mine")
    (folder / "ids-00009.npy").touch()
    prepare(source, folder, processes=1, overwrite=True)
    assert open_corpus(folder).tokens == 3
    assert own.exists()  # files of the corpus before go, no others
    assert not (folder / "ids-00009.npy").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_corpus_is_never_replaced(prepared, overwrite):
    source, folder = prepared
    other = folder.parent / "other"
    other.mkdir()
    assert prepare(source, other, processes=1).tokens == 3, "an empty folder is free"
    (folder.parent / "full").mkdir()
    (folder.parent / "full" / "meta.json").write_text("{}")
    for name, message in (("text.txt", "not a folder"), ("full", "contains other files than a prepared corpus")):
        before = sorted(os.listdir(folder.parent))
        with pytest.raises(ElmoFastError, match=message):
            prepare(source, folder.parent / name, processes=1, overwrite=overwrite)
        assert sorted(os.listdir(folder.parent)) == before
    with pytest.raises(FileNotFoundError, match=r"absent"):
        prepare(source, folder.parent / "absent" / "out", processes=1)


def test_a_prepared_folder_is_no_text(prepared):
    _, folder = prepared
    assert is_prepared(folder)
    assert not is_prepared(folder.parent)
    assert not is_prepared(folder.parent / "text.txt")
    assert not is_prepared(folder / "absent")
    for call in (lambda: read_corpus(str(folder), VOCABULARY), lambda: count_words_of(str(folder))):
        with pytest.raises(ElmoFastError, match="is a prepared corpus; give text files"):
            call()


def test_parts_of_a_piece_are_whole_sentences(tmp_path):
    """Whatever is read at a time; each number is replaced."""
    numbers = np.array([1, 2, 0, 3, 0, 1, 1, 1, 1, 2, 0], np.uint32)
    (tmp_path / "ids").write_bytes(numbers.data)
    new = np.array([0, 7, 8, 9], np.uint32)
    for at_once in range(1, 13):
        parts = list(renumbered(tmp_path / "ids", new, at_once))
        assert all(part[-1] == 0 for part in parts)
        assert np.array_equal(np.concatenate(parts), new[numbers])
