"""Vocabulary files as bilm-tf reads them, refused where bilm-tf silently spoils a word."""

import gzip
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elmo_fast.errors import ElmoFastError
from elmo_fast.text import Vocabulary, count_words, unknown_hints


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_ids_are_line_indices_and_maxtermid_takes_none(tmp_path):
    vocabulary = Vocabulary.read(write(tmp_path / "v", "</S>", "<S>", "!!!MAXTERMID", "<UNK>", "the", "é"))
    assert vocabulary.words == ["</S>", "<S>", "<UNK>", "the", "é"]
    assert (vocabulary.eos, vocabulary.bos, vocabulary.unk) == (0, 1, 2)
    assert vocabulary.ids(["é", "absent", "<S>", "!!!MAXTERMID"]).tolist() == [4, 2, 1, 2]
    assert (vocabulary.id("the"), vocabulary.id("absent")) == (3, 2)
    assert "the" in vocabulary
    assert "absent" not in vocabulary
    assert len(vocabulary) == 5


@pytest.mark.parametrize("missing", ["<S>", "</S>", "<UNK>", "<S>, </S>, <UNK>"])
def test_a_file_without_a_marker_is_refused_by_name(tmp_path, missing):
    path = write(tmp_path / "v.txt", *({"<S>", "</S>", "<UNK>", "a"} - set(missing.split(", "))))
    with pytest.raises(ElmoFastError, match=f"v.txt lacks {missing};"):
        Vocabulary.read(path)


def test_of_equal_words_the_last_has_the_id_and_all_count():
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "a", "", "a", ""])
    assert (len(vocabulary), vocabulary.id("a"), vocabulary.id("")) == (7, 5, 6)


def test_built_by_falling_count_then_word():
    counts = count_words([["b", "a", "d"], ["b", "<S>", "!!!MAXTERMID"], [], ["c", "a", "b"]])
    assert counts["b"] == 3
    assert Vocabulary.build(counts).words == ["<S>", "</S>", "<UNK>", "b", "a", "c", "d"]
    assert Vocabulary.build(counts, min_count=2).words[3:] == ["b", "a"]
    assert Vocabulary.build(counts, max_size=4).words[3:] == ["b"]


@given(st.lists(st.text(max_size=8), max_size=20))
def test_write_and_read_give_the_same_words_or_no_file(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("vocabulary") / "v"
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", *words])
    try:
        vocabulary.write(path)
    except ElmoFastError:
        assert not path.exists()
        assert any(w != w.strip() or set(w) & set("\n\r\0") or any("\ud800" <= c <= "\udfff" for c in w) for w in words)
    else:
        assert Vocabulary.read(path).words == vocabulary.words
    assert [p.name for p in path.parent.iterdir()] in ([], ["v"])


def test_a_name_in_gz_is_really_compressed(tmp_path):
    """Such a name is accepted by `read` and every reader of text; equal words give equal bytes."""
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "é"])
    for name in ("v.gz", "w.gz"):
        vocabulary.write(tmp_path / name)
    assert gzip.decompress((tmp_path / "v.gz").read_bytes()).decode() == "<S>\n</S>\n<UNK>\né\n"
    assert (tmp_path / "v.gz").read_bytes() == (tmp_path / "w.gz").read_bytes()
    assert Vocabulary.read(tmp_path / "v.gz").words == vocabulary.words


def test_marks_of_unknown_words_in_a_text_are_hinted_at():
    counts = Counter({"<unk>": 3, "<UNK>": 1, "the": 16})
    own, others = unknown_hints(Vocabulary.build(counts), counts.__getitem__, counts.total())
    assert "the text contains <UNK> 1 times (5.0%)" in own
    assert "predicted as a word outside the vocabulary;" in own
    assert "the text contains <unk> 3 times (15.0%)" in others
    assert "predicted as a word of its own, besides <UNK>;" in others
    plain = Counter({"the": 16, "unk": 2})
    assert unknown_hints(Vocabulary.build(plain), plain.__getitem__, plain.total()) == []
