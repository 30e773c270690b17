"""Files of word vectors: what is written is read back bit by bit, others' files are read, and damage is reported."""

import gzip
import os
import resource
import signal
import struct

import numpy as np
import pytest

from elmo_fast.embed import word_vectors as module
from elmo_fast.errors import ElmoFastError
from elmo_fast.static import Vectors, load_vectors, save_vectors

WORDS = ["the", ",", "Zürich", "日本語", "1.5", "don't", "…"]
FORMATS = {"a.bin": "word2vec-binary", "a.txt": "word2vec-text", "a.safetensors": "safetensors", "a.glove": "glove"}


@pytest.fixture
def vectors():
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 5)).astype(np.float32)
    matrix[1] = [0, -0.0, 1e-42, 3.4028235e38, 1 / 3]
    return Vectors(WORDS, matrix)


def same(a, b):
    return a.words == b.words and a.matrix.tobytes() == b.matrix.tobytes() and a.matrix.shape == b.matrix.shape


@pytest.mark.parametrize("name", [*FORMATS, "a.bin.gz", "a.txt.gz", "a.glove.gz"])
def test_what_is_written_is_read_back_bit_by_bit(tmp_path, vectors, name):
    """Each format, plain and gzip, named and detected; and a part of it."""
    path, format = tmp_path / name, FORMATS[name.removesuffix(".gz")]
    save_vectors(vectors, path, "glove" if format == "glove" else "auto")
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert module.detected(str(path)) == format
    for expected in ("auto", format):
        assert same(load_vectors(path, expected), vectors)
    for limit in (0, 1, 3, 7, 9, 10**9, 10**30):
        part = load_vectors(path, limit=limit)
        assert same(part, Vectors(WORDS[:limit], vectors.matrix[:limit]))


def test_safetensors_are_not_packed(tmp_path, vectors):
    with pytest.raises(ElmoFastError, match=r"leave out \.gz"):
        save_vectors(vectors, tmp_path / "a.safetensors.gz")


@pytest.mark.parametrize("name", ["a.bin", "a.txt", "a.glove"])
def test_files_longer_than_one_chunk(tmp_path, monkeypatch, vectors, name):
    """Chunks that end anywhere, within words and numbers, change nothing."""
    save_vectors(vectors, tmp_path / name, FORMATS[name])
    for size in range(1, 60, 7):
        monkeypatch.setattr("elmo_fast.embed.word_vectors.CHUNK_BYTES", size)
        assert same(load_vectors(tmp_path / name), vectors)


@pytest.mark.parametrize("binary", [True, False])
def test_gensim_reads_ours_and_we_read_gensims(tmp_path, vectors, binary):
    """Both directions, words and floats; and KeyedVectors made without a file."""
    keyed_vectors = pytest.importorskip("gensim.models", reason="gensim is not installed").KeyedVectors
    actual, expected = tmp_path / ("a.bin" if binary else "a.txt"), tmp_path / "theirs"
    save_vectors(vectors, actual)
    read = keyed_vectors.load_word2vec_format(actual, binary=binary)
    assert read.index_to_key == WORDS
    assert read.vectors.tobytes() == vectors.matrix.tobytes()
    read.save_word2vec_format(expected, binary=binary)
    assert same(load_vectors(expected), vectors)
    keyed = vectors.to_gensim()
    assert keyed.index_to_key == WORDS
    assert keyed.vectors.tobytes() == vectors.matrix.tobytes()


def test_the_c_programs_ways_of_writing(tmp_path):
    """word2vec.c: a blank at the end of text lines, a line end after each binary vector; Windows' line ends."""
    path = tmp_path / "a"
    path.write_bytes(b"2 2\r\nthe 0.5 -1 \r\nof 1e-3 2 \r\n\r\n")
    assert load_vectors(path).matrix.tolist() == [[0.5, -1], [np.float32(1e-3), 2]]
    path.write_bytes(b"2 1\nthe " + struct.pack("<f", 0.5) + b"\nof " + struct.pack("<f", 2) + b"\n")
    assert load_vectors(path).words == ["the", "of"]
    assert load_vectors(path).matrix.tolist() == [[0.5], [2]]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, "zstandard"])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, pack):
    """In each format that begins with text, packed or not, and whatever the file is called."""
    if pack == "zstandard":
        pack = pytest.importorskip("zstandard").compress
    rows = struct.pack("<2f", 1, 2), struct.pack("<2f", 3, 4)
    for data in (b"the 1 2\nof 3 4\n", b"2 2\nthe 1 2\nof 3 4\n", b"2 2\nthe " + rows[0] + b"of " + rows[1]):
        (tmp_path / "a").write_bytes(pack(b"\xef\xbb\xbf" + data))
        assert same(load_vectors(tmp_path / "a"), Vectors(["the", "of"], np.array([[1, 2], [3, 4]], np.float32)))


def test_words_with_blanks_of_gloves_files(tmp_path):
    """glove.840B has ". . ." and "at name@domain.com": the word is what stands before the last D numbers."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"the 1 2\n. . . 3 4\nat name@domain.com 5 6\n")
    vectors = load_vectors(path)
    assert vectors.words == ["the", ". . .", "at name@domain.com"]
    assert vectors.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]
    save_vectors(vectors, tmp_path / "b.safetensors")
    assert same(load_vectors(tmp_path / "b.safetensors"), vectors)
    save_vectors(vectors, tmp_path / "b.glove", "glove")
    assert same(load_vectors(tmp_path / "b.glove"), vectors)
    for name in ("b.txt", "b.bin"):
        with pytest.raises(
            ElmoFastError, match=r"the word '\. \. \.' cannot be written as word2vec-.*; use \.safetensors"
        ):
            save_vectors(vectors, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_word_that_stands_twice_keeps_its_first_vector(tmp_path):
    """As in gensim; a warning names it."""
    path = tmp_path / "a.txt"
    path.write_text("a 1 2\nb 3 4\na 5 6\nc 7 8\nb 9 9\n")
    with pytest.warns(UserWarning, match=r"a\.txt: 2 words occur again \(the first: 'a'\)"):
        vectors = load_vectors(path)
    assert vectors.words == ["a", "b", "c"]
    assert vectors.matrix.tolist() == [[1, 2], [3, 4], [7, 8]]


def test_words_that_are_not_utf8(tmp_path):
    """word2vec.c cuts words at a byte: U+FFFD and a warning, in text and binary."""
    path = tmp_path / "a"
    for data in (b"caf\xc3 1\nthe 2\n", b"2 1\ncaf\xc3 " + struct.pack("<f", 1) + b"the " + struct.pack("<f", 2)):
        path.write_bytes(data)
        with pytest.warns(UserWarning, match=r"1 words are not UTF-8 \(the first: b'caf\\xc3'\)"):
            vectors = load_vectors(path)
        assert vectors.words == ["caf\ufffd", "the"]


def test_lines_are_counted_over_chunks(tmp_path, monkeypatch):
    """An error in the tenth line names the tenth, whatever was read at a time."""
    path = tmp_path / "a"
    path.write_bytes(b"9 2\n" + b"".join(b"w%d 1 2\n" % i for i in range(8)) + b"bad 1\n")
    for size in (1, 10, 1000):
        monkeypatch.setattr("elmo_fast.embed.word_vectors.CHUNK_BYTES", size)
        with pytest.raises(ElmoFastError, match="a, line 10: "):
            load_vectors(path)


def test_a_line_longer_than_any_text_may_have_is_refused(tmp_path, monkeypatch):
    """Before it is in memory as a whole."""
    for name, size in (("CHUNK_BYTES", 10), ("HEAD_BYTES", 20), ("compressed.LONGEST_LINE", 100)):
        monkeypatch.setattr(f"elmo_fast.embed.word_vectors.{name}", size)
    (tmp_path / "a").write_bytes(b"the 1 2\nof 3 4\n" + b"to 5 6" + b" " * 1000)
    with pytest.raises(ElmoFastError, match="a, line 3: longer than 100 bytes"):
        load_vectors(tmp_path / "a")


BINARY = b"2 2\nthe " + struct.pack("<2f", 0.5, 1) + b"of " + struct.pack("<2f", 2, 3)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"a 1 2\nb 3\nc 4 5\n", r"line 2: "),
        (b"3 2\na 1 2\nb 3 4\n", r"truncated: wanted 3 vectors, as line 1 announces, found 2"),
        (b"1 2\na 1 2\nb 3 4\n", r"wanted 1 vectors, as line 1 announces, found more"),
        (b"90 200\na 1 2\n", r"line 2: wanted a word and 200 finite numbers"),
        (BINARY[:-1], r"truncated: wanted 2 vectors, as line 1 announces, found 1"),
        (BINARY + b"x", r"wanted 2 vectors, as line 1 announces, found more"),
        (b"2 1\nthe " + struct.pack("<f", np.nan) + b"of " + struct.pack("<f", 1), "'the' contains NaN or infinity"),
        (b"1 1\n" + b"x" * 9000, "no word ends within 4096 bytes"),
        (b"2 1\na " + struct.pack("<f", -1.1) + b"o\nf " + struct.pack("<f", 1), "contains a line break"),
        (b"\x80\x04\x95 pickled", r"no word vectors of a known format: word2vec \(gensim's save_word2vec_format"),
        (b"the 1 x\nof 3 4\nto 5 6\n", r"line 1: wanted a word and 2 finite numbers .* found 'the 1 x'"),
        (b"7 8 9 1\nof 3 4\nto 5 6\n", r"line 1: wanted a word and 2 finite numbers .* found '7 8 9 1'"),
        (b"the 1 2\rof 3 4\rto 5 6\r", r"line 1: a line break \(\\r\) within a word; end lines with"),
        (b"the 1 2\nof 3 4\rto 5 6\n", r"line 2: a line break \(\\r\) within a word; end lines with"),
        (b"2 2\nthe nan nan\nof 3 4\n", r"line 2: wanted a word and 2 finite numbers .* found 'the nan nan'"),
        (b"3 2\nthe 1,25 0,125\na 0,5 1,5\nb 1,5 2,5\n", r"line 2: .* found 'the 1,25 0,125'"),
        (b"the 1,5 0 2\na 0,5 1 3\n", r"line 1: wanted a word and 3 finite numbers .* found 'the 1,5 0 2'"),
        (b"2 3\nthe 1 2\nof 3 4\n", "line 2: wanted a word and 3 finite numbers"),
        (b"", "contains no word vectors of a known format"),
        (gzip.compress(b"a 1 2\nb 3 4\n" * 50, mtime=0)[:-9], "damaged .gz data"),
    ],
)
def test_damage_is_told(tmp_path, data, sentence):
    """With the file, and the line where there is one."""
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(ElmoFastError, match=rf"{path}.*({sentence})"):
        load_vectors(path)


def test_a_damaged_own_file_is_refused(tmp_path, vectors):
    """A changed number; other damage, which fuzzing finds, is an error or changes nothing that is read."""
    path = tmp_path / "a.safetensors"
    save_vectors(vectors, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    with pytest.raises(ElmoFastError, match="damaged: its content is not what was written"):
        load_vectors(path)


@pytest.fixture
def text(tmp_path, monkeypatch, vectors):
    """A text file with a cache."""
    monkeypatch.setattr(module, "WORTH_BYTES", 1)
    save_vectors(vectors, tmp_path / "a.txt")
    return tmp_path / "a.txt"


def test_the_cache_is_read_in_place_of_the_text(text, vectors):
    """The second time no text is parsed; with a limit neither."""
    assert same(load_vectors(text), vectors)
    about, (*whole, last) = text.stat(), text.read_bytes().splitlines(keepends=True)
    text.write_bytes(b"".join([*whole, b"?" * len(last)]))  # of the same size and time
    os.utime(text, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert same(load_vectors(text), vectors)
    assert load_vectors(text, limit=2).words == WORDS[:2]


def test_a_full_disk_is_told_and_a_readable_text_is_read(text, vectors, tmp_path):
    """A limit on file sizes stands for it: an OSError where vectors are saved, a warning where they are cached."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=r"out\.safetensors"):
            save_vectors(vectors, tmp_path / "out.safetensors")
        with pytest.warns(UserWarning, match="is not cached, so reading stays slow"):
            assert same(load_vectors(text), vectors)
        assert same(load_vectors(text, cache=False), vectors)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_the_cache_of_another_file_is_not_used(text, vectors):
    """After a change of the text, of equal length too, or read as another format, it is read and cached again."""
    load_vectors(text)
    cache = text.with_name("a.txt.cache.safetensors")
    contents = {cache.read_bytes()}
    text.write_text(text.read_text().replace("the", "teh"))
    assert load_vectors(text).words[0] == "teh"
    contents.add(cache.read_bytes())
    os.utime(text, ns=(1, 1))
    assert load_vectors(text).words[0] == "teh"
    contents.add(cache.read_bytes())
    assert len(contents) == 3
    with pytest.raises(ElmoFastError, match=r"line 1: wanted a word and 5 finite numbers .* found '7 5'"):
        load_vectors(text, "glove")


def test_a_damaged_cache_is_never_trusted(text, vectors):
    """A byte turned over or an end cut off: reported, read from the text, written again."""
    load_vectors(text)
    cache = text.with_name("a.txt.cache.safetensors")
    whole = cache.read_bytes()
    for data in (whole[:-5] + bytes([whole[-5] ^ 64]) + whole[-4:], whole[: len(whole) // 2], b""):
        cache.write_bytes(data)
        with pytest.warns(UserWarning, match="the cache cannot be used"):
            assert same(load_vectors(text), vectors)
        assert cache.read_bytes() == whole


@pytest.mark.parametrize(
    ("words", "matrix", "sentence"),
    [
        (["a"], np.zeros((1, 2)), "float32"),
        (["a"], np.zeros(2, np.float32), r"\[V, D\]"),
        (["a"], [[1.0]], "list"),
        (["a", "b"], np.zeros((1, 2), np.float32), "matrix must have 2 rows, one per word; got 1"),
        (["a", "b", "a"], np.zeros((3, 2), np.float32), "words must be all different; got 'a' twice"),
    ],
)
def test_vectors_that_do_not_fit(words, matrix, sentence):
    with pytest.raises(ElmoFastError, match=sentence):
        Vectors(words, matrix)


def test_looking_up(vectors):
    assert repr(vectors) == "Vectors(7 words, 5 dimensions)"
    assert len(vectors) == 7
    assert vectors.dimension == 5
    assert "the" in vectors
    assert "The" not in vectors
    assert vectors.index["日本語"] == 3
    assert vectors.vector("日本語").tobytes() == vectors.matrix[3].tobytes()
    with pytest.raises(ElmoFastError, match="'The' has no vector; 'the' has one"):
        vectors.vector("The")


def test_what_cannot_be_written_leaves_the_old_file(tmp_path, vectors):
    """No name, no format, no finite number, no UTF-8."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    bad = Vectors(["a"], np.full((1, 2), np.inf, np.float32))
    for thing, file, format, sentence in [
        (vectors, tmp_path / "a.dat", "auto", "the name must end in"),
        (vectors, path, "word2vec", "format must be one of"),
        (bad, path, "auto", "'a' has a vector with NaN or infinity"),
        (
            Vectors(["a 5"], np.zeros((1, 1), np.float32)),
            path,
            "glove",
            "'a 5' cannot be written as glove and read back",
        ),
        (Vectors([""], np.zeros((1, 1), np.float32)), path, "glove", "the word '' cannot be written as glove"),
        (Vectors(["\ud800"], np.zeros((1, 1), np.float32)), path, "auto", "cannot be written as UTF-8"),
        (Vectors(["\ud800"], np.zeros((1, 1), np.float32)), tmp_path / "b.safetensors", "auto", "cannot be written as"),
    ]:
        with pytest.raises(ElmoFastError, match=sentence):
            save_vectors(thing, file, format)
    assert path.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt"]
