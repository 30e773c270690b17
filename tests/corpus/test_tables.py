"""Corpora of tables, and lines that are held out of a text."""

import csv
import gzip
import json
import random

import numpy as np
import pytest

from elmo_fast.corpus import count_words_of, is_prepared, open_corpus, pieces, prepare, read_corpus, word_counts
from elmo_fast.corpus.folder import heldout_of
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary
from elmo_fast.text.sources import sentences_of

LINES = [" ".join(random.Random(seed).choices(["a", "b", "c", "d,e", "é"], k=1 + seed % 9)) for seed in range(400)]


def write_table(path, delimiter=","):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([("id", "said"), *enumerate(LINES[:200]), ("", "")])


@pytest.fixture
def tables(tmp_path):
    """A folder of LINES, as text and as three tables of half of them each."""
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    (tmp_path / "tables").mkdir()
    write_table(tmp_path / "tables" / "a.csv")
    half = "".join(json.dumps({"said": line.split(), "id": None}) + "\n" for line in LINES[200:])
    (tmp_path / "tables" / "b.jsonl.gz").write_bytes(gzip.compress(half.encode()))
    return tmp_path


def lines_of(corpus):
    """The sentences of a corpus, as strings, in order."""
    return [" ".join(corpus.words(*where)) for where in zip(*corpus.places(np.arange(corpus.sentences)), strict=True)]


def test_tables_are_read_as_the_text_of_their_column(tables):
    """A CSV file of strings and compressed JSON lines of lists: the words, corpora and folders of the text."""
    text, folder = str(tables / "text.txt"), str(tables / "tables")
    counts = count_words_of(folder, column="said")
    assert counts == count_words_of(text)
    vocabulary = Vocabulary.build(counts)
    expected = read_corpus(text, vocabulary).fingerprint
    assert read_corpus(folder, vocabulary, column="said").fingerprint == expected
    assert prepare(folder, tables / "out", vocabulary=vocabulary, column="said", processes=2).fingerprint == expected
    assert [each.name for each in sentences_of(folder, column="said") if each.tokens] == LINES
    with pytest.raises(ElmoFastError, match="column was 'said', now None"):
        prepare(folder, tables / "out", vocabulary=vocabulary)
    with pytest.raises(ElmoFastError, match="has no column 'sad'; it has: id, said; did you mean said"):
        count_words_of(folder, column="sad")


def test_a_parquet_file_is_read_too(tables):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"text": [*LINES, None]}), tables / "text.parquet")
    assert count_words_of(str(tables / "text.parquet")) == count_words_of(str(tables / "text.txt"))


def test_a_token_of_a_list_cannot_be_the_mark_of_line_ends(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ["a", "\\u0000"]}\n')
    with pytest.raises(ElmoFastError, match=r"a\.jsonl, row 1: a token is a NUL character"):
        count_words_of(str(tmp_path / "a.jsonl"))


def test_the_same_lines_are_held_out_of_any_files_by_any_number_of_processes(tables, monkeypatch):
    """Of text in small pieces, of the same lines in reverse order, and of tables; no line is on both sides."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 700)
    monkeypatch.setattr(pieces, "BLOCK_BYTES", 50)
    monkeypatch.setattr(word_counts, "BYTES_PER_PROCESS", 1)
    (tables / "reverse.txt").write_text("\r\n".join(f" {line} " for line in reversed(LINES)), encoding="utf-8")
    held, trained = [], []
    for name, processes in (("text.txt", 1), ("text.txt", 3), ("reverse.txt", 1), ("tables", 1)):
        out = tables / f"{name}-{processes}"
        corpus = prepare(str(tables / name), out, min_count=1, processes=processes, heldout_share=0.2, column="said")
        heldout = open_corpus(heldout_of(out))
        assert heldout.vocabulary.words == corpus.vocabulary.words
        held.append(sorted(lines_of(heldout)))
        trained.append(sorted(lines_of(corpus)))
    assert held == held[:1] * 4
    assert trained == trained[:1] * 4
    assert sorted(held[0] + trained[0]) == sorted(LINES)
    assert not {*held[0]} & {*trained[0]}
    assert 0.1 < len(held[0]) / len(LINES) < 0.3


def test_a_prepared_folder_is_of_one_share(tables):
    """Its held-out lines are there whenever it is; another share, or a corpus of all lines, is refused."""
    text = str(tables / "text.txt")
    corpus = prepare(text, tables / "out", heldout_share=0.2)
    assert open_corpus(tables / "out", heldout_share=0.2).fingerprint == corpus.fingerprint
    assert prepare(text, tables / "out", heldout_share=0.2).fingerprint == corpus.fingerprint
    with pytest.raises(ElmoFastError, match=r"was prepared with heldout_share 0\.2, not 0\.1; give heldout_share=0\.2"):
        open_corpus(tables / "out", heldout_share=0.1)
    with pytest.raises(ElmoFastError, match=r"heldout_share was 0\.2, now None"):
        prepare(text, tables / "out")
    with pytest.raises(ElmoFastError, match=r"heldout_share 1e-09 holds out none of its lines"):
        prepare(text, tables / "none", heldout_share=1e-9)
    assert not is_prepared(tables / "none")
