"""-: the standard input as an input and the standard output as an output of text; where not, a sentence says so."""

import io
import types

import pytest

from tests.cli.conftest import ran, refused
from tests.command_line import elmo_fast

VECTORS = "king 1 2\nqueen 2 1\nman 0 1\nwoman 1 0\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files of the commands; the standard input holds VECTORS."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors.txt").write_text(VECTORS)
    (tmp_path / "in.txt").write_text("a a b\n")
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(VECTORS.encode()), fileno=lambda: 0))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embed in.txt - --format npz", "the standard output (-) takes the format jsonl; got npz: name a file"),
        ("embed in.txt - --shard 0/2", "several processes write a folder; OUTPUT cannot be the standard output (-)"),
        ("merge parts -", "OUTPUT cannot be the standard output (-): name a file"),
        ("static convert vectors.txt --output -", "--output cannot be the standard output (-)"),
        ("plot words --vectors vectors.txt --output -", "--output cannot be the standard output (-)"),
        ("eval --test_prefix in.txt --output -", "--output cannot be the standard output (-)"),
        ("eval --model - --test_prefix in.txt", "--model cannot be the standard input (-): name a file or folder"),
        (
            "pretrain --train_prefix - --save_dir run",
            "--train_prefix cannot be the standard input (-), as",
        ),
        ("task train --train_path -", "--train_path cannot be the standard input (-), as the run reads"),
        ("task train --vectors -", "--vectors cannot be the standard input (-), as the run reads"),
        ("report --model -", "--model cannot be the standard input (-), as the run reads"),
        ("merge - out.hdf5", "PARTS cannot be the standard input (-): name a file or folder"),
        ("neighbours --corpus - --query a --index 0 --model -", "--model cannot be the standard input (-)"),
        ("static eval - --pairs -", "vectors and --pairs cannot both be the standard input (-)"),
    ],
)
def test_where_a_standard_stream_cannot_serve(place, words, message):
    before = sorted(place.iterdir())
    refused(elmo_fast(*words.split()), message)
    assert sorted(place.iterdir()) == before


def test_a_copy_of_the_standard_input_serves_commands_that_read_twice(place):
    expected = ran("static", "neighbours", "vectors.txt", "--words", "king").stdout
    assert ran("static", "neighbours", "-", "--words", "king").stdout == expected != ""


def test_text_is_written_to_the_standard_output(place):
    """And nothing else; a word "-" is a word."""
    ran("vocab", "--train_prefix", "in.txt", "--vocab_file", "v.txt", "--min_count", 1)
    done = ran("vocab", "--train_prefix", "in.txt", "--vocab_file", "-", "--min_count", 1)
    assert done.stdout == (place / "v.txt").read_text() == "<S>\n</S>\n<UNK>\na\nb\n"
    assert "-" not in [path.name for path in place.iterdir()]
    assert "has no vector for '-'" in elmo_fast("plot", "words", "--vectors", "vectors.txt", "--words", "-").stderr
