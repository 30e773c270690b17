"""Text files as streams: what is accepted, what is refused with file and line, and gzip and standard input."""

import gzip
import io
import os
import sys
import threading
import tracemalloc

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elmo_fast._io import compressed
from elmo_fast.corpus import pieces
from elmo_fast.corpus.word_counts import count_words_of
from elmo_fast.errors import ElmoFastError
from elmo_fast.text import files_matching, read_lines, rereadable


@pytest.fixture
def written(tmp_path):
    def write(data: bytes, name: str = "in.txt"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def sentences(path):
    return [(index, line.split()) for index, line in read_lines(path)]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ("A  b\tc\r\n\u3000d\u00a0e \n", [["A", "b", "c"], ["d", "e"]]),
        ("\na\n \t\nb", [[], ["a"], [], ["b"]]),
        ("", []),
        ("a\rb\r\nc", [["a"], ["b"], ["c"]]),
        ("a\u2028b\u0085c\x0cd\n", [["a", "b", "c", "d"]]),  # as Python's text files: these end no line
        ("\ufeffa b\n", [["a", "b"]]),  # a byte order mark
        ("word " * 200_000, [["word"] * 200_000]),
        ("x" * 10_000, [["x" * 10_000]]),
    ],
    ids=["white space", "blank lines", "empty", "old line ends", "separators", "mark", "long line", "long word"],
)
def test_a_line_is_a_sentence_of_what_white_space_separates(written, data, rows):
    """Plain, and gzip, with the suffix and without."""
    for path in (written(data.encode()), *(written(gzip.compress(data.encode()), name) for name in ("in.gz", "in"))):
        assert sentences(path) == list(enumerate(rows))


@pytest.mark.parametrize("at", [0, 8189, 8190, 8191, 8192])
def test_line_ends_that_were_translated_twice_end_one_line(written, at):
    """\\r\\r\\n, wherever blocks of the file end; a blank line of each kind stays one."""
    text = b"x" * at + b"a\r\r\nb\r\r\n\r\r\nc\n\nd\r\n\r\ne\r\rf"
    first = ("x" * at + "a").split()
    rows = [first, ["b"], [], ["c"], [], ["d"], [], ["e"], [], ["f"]]
    assert sentences(written(text)) == list(enumerate(rows))


def test_lines_keep_their_inner_space(written):
    assert list(read_lines(written(b"  a  b \n"))) == [(0, "a  b")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"good\ncaf\xe9 x\n", r"in\.txt, line 2, character 4: the byte 0xe9 is not UTF-8"),
        (b"good\ngood\nbad\xff", r"in\.txt, line 3, character 4: the byte 0xff"),
        ("a b\n".encode("utf-16-be"), r"in\.txt, line 1: contains a NUL byte"),
        (b"a\nb\0c\n", r"in\.txt, line 2: contains a NUL byte: this is a binary file"),
        (b"\xed\xa0\x80\n", r"line 1, character 1: the byte 0xed"),
        (b"a\nb \xe2\x82", r"line 2, character 3: the byte 0xe2"),
        (b"\xef", "line 1, character 1: the byte 0xef is not UTF-8"),  # a part of a byte order mark
        (b"\xef\xbb", "line 1, character 1: the byte 0xef is not UTF-8"),
    ],
)
def test_binary_and_undecodable_files_are_refused_by_line(written, data, message):
    with pytest.raises(ElmoFastError, match=message):
        sentences(written(data))


@pytest.mark.parametrize("read", [sentences, count_words_of], ids=["lines", "pieces"])
def test_a_line_longer_than_the_limit_is_refused(written, monkeypatch, read):
    """In bytes, of one word or many, as it is for the readers of corpora and of vectors."""
    monkeypatch.setattr(compressed, "LONGEST_LINE", 3000)
    monkeypatch.setattr(pieces, "BLOCK_BYTES", 64)
    for line in ("x" * 2998, "a b " * 740, "é" * 1490):
        read(written(f"{line}\r\n\n{line}".encode()))
        with pytest.raises(ElmoFastError, match=r"in\.txt, line 2: longer than 3,000 bytes; give text of one sentence"):
            read(written(f"short\n{line * 2}\nshort\n".encode()))


@pytest.mark.parametrize("pack", ["gzip", "zstandard"])
def test_packed_text_is_unpacked_a_block_at_a_time(written, pack):
    """Reading a file of the highest ratio takes a part of its memory."""
    data = b"again and again\n" * (1 << 21)
    path = written(pytest.importorskip(pack).compress(data))
    with compressed.reading(path) as stream:
        tracemalloc.start()
        try:
            assert sum(map(len, iter(lambda: stream.read(1 << 16), b""))) == len(data)
            assert tracemalloc.get_traced_memory()[1] < len(data) // 4
        finally:
            tracemalloc.stop()


def test_what_stands_before_the_bad_line_was_read(written):
    stream = read_lines(written(b"a\nb\n\xff\n"))
    assert [next(stream), next(stream)] == [(0, "a"), (1, "b")]
    with pytest.raises(ElmoFastError):
        next(stream)


def test_damaged_gzip_is_named(written):
    whole = gzip.compress(os.urandom(3000).hex().encode() + b"\n")
    for data in (whole[: len(whole) // 2], b"plain text"):
        with pytest.raises(ElmoFastError, match=r"in\.gz: damaged \.gz data"):
            sentences(written(data, "in.gz"))


def test_standard_input(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO("é b\n\nc".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert sentences("-") == [(0, ["é", "b"]), (1, []), (2, ["c"])]
    assert not stdin.buffer.closed


def test_errors_in_the_standard_input_name_it(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(ElmoFastError, match="standard input, line 1"):
        sentences("-")


def test_rereadable_copies_a_pipe_and_removes_the_copy(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a b\nc\n",))
    writer.start()
    with rereadable(pipe) as copy:
        writer.join()
        assert sentences(copy) == sentences(copy) == [(0, ["a", "b"]), (1, ["c"])]
    assert not os.path.exists(copy)


def test_rereadable_copies_the_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    with rereadable("-") as copy:
        assert sentences(copy) == sentences(copy) == [(0, ["a"]), (1, ["b"])]


def test_files_matching_a_glob_are_sorted(tmp_path):
    for name in ("b.txt", "a.txt", "c.dat"):
        (tmp_path / name).write_text("")
    (tmp_path / "d.txt").mkdir()
    assert files_matching(f"{tmp_path}/*.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert files_matching(f"{tmp_path}/c.dat") == [f"{tmp_path}/c.dat"]
    with pytest.raises(ElmoFastError, match="no file matches"):
        files_matching(f"{tmp_path}/d*")


def test_a_folder_stands_for_its_files(tmp_path):
    """Not for those of folders in it, nor for hidden ones."""
    (tmp_path / "sub").mkdir()
    with pytest.raises(ElmoFastError, match="contains no file"):
        files_matching(str(tmp_path))
    for name in ("b.txt", "a.gz", ".hidden", "sub/c.txt"):
        (tmp_path / name).write_text("")
    assert files_matching(str(tmp_path)) == [f"{tmp_path}/a.gz", f"{tmp_path}/b.txt"]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_python_reads_them_or_refused(tmp_path_factory, data):
    """The reference: decode the whole file at once, translate line ends, split."""
    path = tmp_path_factory.mktemp("bytes") / "in.txt"
    path.write_bytes(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        with pytest.raises(ElmoFastError):
            sentences(path)
        return
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    assert sentences(path) == [(i, line.split()) for i, line in enumerate(lines)]
