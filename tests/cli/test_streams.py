"""-: the standard input as a text, the standard output for text, vectors as lines and labels; nothing else there."""

import io
import types

import pytest

from tests.cli.conftest import ran, refused
from tests.support.command_line import elmo_fast

TEXT = "a a b\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a text; the standard input holds the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text(TEXT)
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(TEXT.encode()), fileno=lambda: 0))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "embed in.txt - --format npz",
            "-: the name says the format jsonl, but npz was chosen; give one that fits the other",
        ),
        ("embed in.txt - --shard 0/2", "several processes write a folder; OUTPUT cannot be the standard output (-)"),
        ("static convert vectors.txt --output -", "--output cannot be the standard output (-): name a file"),
    ],
)
def test_where_a_standard_stream_cannot_serve(place, words, message):
    refused(elmo_fast(*words.split()), message)
    assert [path.name for path in place.iterdir()] == ["in.txt"]


def test_a_text_from_stream_to_stream_is_that_of_files(place):
    ran("vocab", "--train_prefix", "in.txt", "--vocab_file", "v.txt", "--min_count", 1)
    done = ran("vocab", "--train_prefix", "-", "--vocab_file", "-", "--min_count", 1)
    assert done.stdout == (place / "v.txt").read_text() == "<S>\n</S>\n<UNK>\na\nb\n"
    assert "standard output: 5 lines" in done.stderr
    assert sorted(path.name for path in place.iterdir()) == ["in.txt", "v.txt"]


def test_a_page_of_the_standard_input_names_it(place, toy):
    model = ["--options_file", toy[0], "--weight_file", toy[1]]
    ran("plot", "senses", *model, "--word", "a", "--text", "-", "-q")
    assert "standard input, layer 2 of weights.hdf5" in (place / "senses.html").read_text()
