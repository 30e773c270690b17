"""Pieces of files and their words as numbers, against `read_lines` over the whole file."""

import gzip
import os

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from elmo_fast.corpus import pieces
from elmo_fast.corpus.pieces import LINE_END, numbered, numbering, pieces_of
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import read_lines

ATOMS = [*"ab \n\r\té\u3000\0\ufeff", "\r\n"]
BYTES = st.lists(st.sampled_from([b"\xff", *(each.encode() for each in ATOMS)]), max_size=40).map(b"".join)


def read(path, size):
    """The sentences of a file, read piece by piece with one numbering."""
    numbers = numbering(LINE_END)
    parts = [part for piece in pieces_of(str(path), size) for part in numbered(piece, numbers)]
    assert all(part.dtype == np.uint32 for part in parts)
    words = list(numbers)
    sentences, sentence = [], []
    for number in np.concatenate([np.zeros(0, np.uint32), *parts]).tolist():
        if number:
            sentence.append(words[number])
        else:
            assert sentence, "a boundary without a sentence before it"
            sentences.append(sentence)
            sentence = []
    assert not sentence, "a sentence without a boundary after it"
    return sentences


def outcome(call):
    try:
        return call()
    except ElmoFastError as error:
        return str(error)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pieces")


@given(BYTES, st.integers(1, 30), st.integers(1, 8), st.booleans())
@example(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", 3, 2, False)
@example(b"a b\r\nc\r\n", 4, 1, False)
@example(b"a\nb \0 c\n", 2, 1, False)
@example(b"a\nb \xff c\n", 2, 1, True)
def test_pieces_of_any_size_give_the_sentences_of_the_file_or_its_error(folder, data, size, block, packed):
    """The same sentences, or the same words about the same line, whatever pieces and blocks the file is read in."""
    path = folder / ("in.gz" if packed else "in.txt")
    path.write_bytes(gzip.compress(data) if packed else data)
    expected = outcome(lambda: [line.split() for _, line in read_lines(path) if line])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "BLOCK_BYTES", block)
        assert outcome(lambda: read(path, size)) == expected


@given(BYTES, st.integers(1, 30))
def test_pieces_are_whole_lines_end_to_end(folder, data, size):
    """Each ends after a line end at or past a multiple of the size, the last one with the file; none is empty."""
    path = folder / "in.txt"
    path.write_bytes(data)
    actual = list(pieces_of(str(path), size))
    assert b"".join(data[piece.begin : piece.end] for piece in actual) == data
    for piece in actual[:-1]:
        assert data[piece.begin : piece.end].endswith(b"\n")
        cut = -(-(piece.begin + 1) // size) * size
        assert data.index(b"\n", cut - 1) + 1 == piece.end or piece.end > cut
    assert all(piece.begin < piece.end for piece in actual)


def test_damaged_gzip_is_named(folder):
    path = folder / "damaged.gz"
    whole = gzip.compress(bytes(range(32, 120)) * 9 + b"\n")
    for data in (whole[: len(whole) // 2], b"plain text", whole[:30] + b"\0\0\0" + whole[33:]):
        path.write_bytes(data)
        with pytest.raises(ElmoFastError, match=r"damaged\.gz: damaged \.gz data: .+"):
            read(path, 100)


def test_a_file_that_is_right_when_looked_at_again_has_changed(folder, monkeypatch):
    path = folder / "changed.txt"
    path.write_bytes(b"a b\n" * 9 + b"\xff\n")
    (piece,) = pieces_of(str(path), 100)
    monkeypatch.setattr(pieces, "BLOCK_BYTES", 4)
    parts = numbered(piece, numbering(LINE_END))
    next(parts)
    (folder / "right").write_bytes(b"a b\n" * 10)
    os.replace(folder / "right", path)  # the piece is read from the old file to its end
    with pytest.raises(ElmoFastError, match="changed while being read"):
        list(parts)
