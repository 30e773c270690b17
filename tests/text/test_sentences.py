"""Text files as streams: what is accepted, what is refused with file and line, and gzip and standard input."""

import gzip
import io
import os
import sys
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elmo_fast.errors import ElmoFastError
from elmo_fast.text import files_matching, read_lines, read_sentences, rereadable


@pytest.fixture
def written(tmp_path):
    def write(data: bytes, name: str = "in.txt"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def sentences(path):
    return list(read_sentences(path))


def test_tokens_are_split_at_any_white_space(written):
    path = written("A  b\tc\r\n\u3000d\u00a0e \n".encode())
    assert sentences(path) == [(0, ["A", "b", "c"]), (1, ["d", "e"])]


def test_blank_lines_are_reported_and_counted(written):
    assert sentences(written(b"\na\n \t\nb")) == [(0, []), (1, ["a"]), (2, []), (3, ["b"])]


def test_empty_file_has_no_sentence(written):
    assert sentences(written(b"")) == []


def test_old_line_ends_and_a_missing_last_one(written):
    assert sentences(written(b"a\rb\r\nc")) == [(0, ["a"]), (1, ["b"]), (2, ["c"])]


@pytest.mark.parametrize("at", [0, 8189, 8190, 8191, 8192])
def test_line_ends_that_were_translated_twice_end_one_line(written, at):
    """\\r\\r\\n, wherever blocks of the file end; a blank line of each kind stays one."""
    text = b"x" * at + b"a\r\r\nb\r\r\n\r\r\nc\n\nd\r\n\r\ne\r\rf"
    first = ("x" * at + "a").split()
    rows = [first, ["b"], [], ["c"], [], ["d"], [], ["e"], [], ["f"]]
    assert sentences(written(text)) == list(enumerate(rows))


def test_line_separators_of_unicode_end_no_line(written):
    """As Python's text files: U+2028, U+0085 and form feeds are white space inside a line."""
    assert sentences(written("a\u2028b\u0085c\x0cd\n".encode())) == [(0, ["a", "b", "c", "d"])]


def test_byte_order_mark_is_no_part_of_the_first_word(written):
    assert sentences(written(b"\xef\xbb\xbfa b\n")) == [(0, ["a", "b"])]


def test_lines_keep_their_inner_space(written):
    assert list(read_lines(written(b"  a  b \n"))) == [(0, "a  b")]


def test_a_megabyte_on_one_line(written):
    assert sentences(written(b"word " * 200_000)) == [(0, ["word"] * 200_000)]


def test_a_word_of_ten_thousand_bytes(written):
    assert sentences(written(b"x" * 10_000)) == [(0, ["x" * 10_000])]


@pytest.mark.parametrize("start", [b"\xef", b"\xef\xbb"])
def test_half_a_byte_order_mark_is_not_utf_8(written, start):
    with pytest.raises(ElmoFastError, match="line 1, character 1: the byte 0xef is not UTF-8"):
        sentences(written(start))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"good\ncaf\xe9 x\n", r"in\.txt, line 2, character 4: the byte 0xe9 is not UTF-8"),
        (b"good\ngood\nbad\xff", r"in\.txt, line 3, character 4: the byte 0xff"),
        (b"\x89HDF\r\n\x1a\n\0\0", r"in\.txt, line 1"),
        (b"a\nb\0c\n", r"in\.txt, line 2: contains a NUL byte: this is a binary file"),
        (b"\xed\xa0\x80\n", r"line 1, character 1: the byte 0xed"),
        (b"a\nb \xe2\x82", r"line 2, character 3: the byte 0xe2"),
    ],
)
def test_binary_and_undecodable_files_are_refused_by_line(written, data, message):
    with pytest.raises(ElmoFastError, match=message):
        sentences(written(data))


def test_what_stands_before_the_bad_line_was_read(written):
    stream = read_sentences(written(b"a\nb\n\xff\n"))
    assert [next(stream), next(stream)] == [(0, ["a"]), (1, ["b"])]
    with pytest.raises(ElmoFastError):
        next(stream)


def test_gzip_by_suffix(written):
    assert sentences(written(gzip.compress("é b\nc\n".encode()), "in.txt.gz")) == [(0, ["é", "b"]), (1, ["c"])]


def test_truncated_gzip_is_named(written):
    whole = gzip.compress(os.urandom(3000).hex().encode() + b"\n")
    with pytest.raises(ElmoFastError, match=r"in\.gz: damaged gzip"):
        sentences(written(whole[: len(whole) // 2], "in.gz"))


def test_what_is_not_gzip_is_named(written):
    with pytest.raises(ElmoFastError, match=r"in\.gz: damaged gzip"):
        sentences(written(b"plain text", "in.gz"))


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sentences(tmp_path / "absent.txt")


def test_standard_input(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO("é b\n\nc".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert sentences("-") == [(0, ["é", "b"]), (1, []), (2, ["c"])]
    assert not stdin.buffer.closed


def test_errors_in_the_standard_input_name_it(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(ElmoFastError, match="standard input, line 1"):
        sentences("-")


def test_rereadable_leaves_a_regular_file_alone(written):
    path = written(b"a\n")
    with rereadable(path) as again:
        assert again == os.fspath(path)


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
    assert files_matching(f"{tmp_path}/*.txt") == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    assert files_matching(f"{tmp_path}/c.dat") == [f"{tmp_path}/c.dat"]
    with pytest.raises(ElmoFastError, match="no file matches"):
        files_matching(f"{tmp_path}/*.gz")


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
