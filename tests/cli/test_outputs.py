"""An output never replaces an input: an error before anything is written, also through links."""

import gzip
import io
import json
import os
import shutil

import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.errors import ElmoFastError
from tests.cli.conftest import ran, refused
from tests.support.command_line import elmo_fast, forked

# What each would write over; {m} is a folder with a model, IN a file that is read, OUT the output.
CASES = {
    "a text": "embed IN OUT --top --model {m}",
    "weights": "embed in.txt OUT --top --options_file {m}/options.json --weight_file IN",
    "the model's folder": "embed in.txt {m}/weights.hdf5 --top --model {m}",
    "a configuration": "embed in.txt config.yaml --top --model {m} --config ./config.yaml",
    "a folder of text": "vocab --train_prefix texts --vocab_file texts/a",
    "a glob": "vocab --train_prefix texts/* --vocab_file texts/b",
    "two outputs": "eval --model {m} --test_prefix in.txt --output new --per_sentence ./new",
    "one of several inputs": "static eval in.txt --pairs other IN --results OUT",
    "one of several outputs": "plot senses --model {m} --text IN --word a --output new.html OUT",
    "a file of a folder": "plot projector --vectors in.txt --word_file texts/metadata.tsv --out_dir texts",
}
LINKS = {"a symbolic link": os.symlink, "a hard link": os.link}


@pytest.fixture
def place(tmp_path, toy, monkeypatch):
    """A folder with a text, texts, a configuration and a model, in which the commands run; what it holds, as bytes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for name in ("in.txt", "texts/a", "texts/b", "texts/metadata.tsv"):
        (tmp_path / name).write_text("a b\n")
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    shutil.copytree(os.path.dirname(toy[0]), tmp_path / "model")
    for name in ("vocab.txt", "metrics.jsonl"):
        (tmp_path / "model" / name).write_text("a\n")
    return tmp_path


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_input_is_unchanged(place, line):
    """The command is refused because of what it would write over, and leaves every file as it was."""
    before = contents(place)
    done = elmo_fast(*line.format(m="model").split())
    refused(done)
    assert "is the same file as" in done.stderr
    assert contents(place) == before


@pytest.mark.parametrize("link", LINKS)
def test_an_input_is_not_written_over_through_a_link(place, link):
    LINKS[link](place / "in.txt", place / "out.txt")
    check_input_is_unchanged(place, CASES["a text"].replace("IN", "in.txt").replace("OUT", "out.txt"))


@pytest.mark.parametrize("case", CASES)
def test_an_input_is_not_written_over(place, case):
    check_input_is_unchanged(place, CASES[case].replace("IN", "in.txt").replace("OUT", "./in.txt"))


def test_the_standard_input_is_not_written_over(place, said):
    before = contents(place)
    with open("in.txt", "rb") as stream:
        words = ["embed", "-", "in.txt", "--top", "--model", "model", "--device", "cpu"]
        child = forked(*words, error=said, first=lambda: os.dup2(stream.fileno(), 0))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert contents(place) == before
    assert "output_file 'in.txt' is the same file as input_file '-', which is read" in said.read_text()


def test_embed_file_does_not_write_over_its_input(place, toy):
    """A stream without a name is taken as before."""
    os.symlink("in.txt", "link.txt")
    with open("in.txt") as stream, pytest.raises(ElmoFastError, match="must differ from input_file"):
        ElmoEmbedder(*toy).embed_file(stream, "link.txt")
    assert (place / "in.txt").read_text() == "a b\n"
    ElmoEmbedder(*toy).embed_file(io.StringIO("a b\n"), "out.hdf5")
    assert (place / "out.hdf5").exists()


def test_json_under_a_name_that_ends_in_gz_is_gzip(place):
    (place / "vectors.txt").write_text("2 2\na 1 0\nb 0 1\n")
    ran("static", "neighbours", "-q", "vectors.txt", "--words", "a", "--results", "results.json.gz")
    assert json.loads(gzip.decompress((place / "results.json.gz").read_bytes()))


def test_what_was_written_before_is_written_again(place):
    """An output next to the model, from which the model is not read, is no input."""
    pair = ["--options_file", "model/options.json", "--weight_file", "model/weights.hdf5"]
    for _ in range(2):
        ran("embed", "in.txt", "model/vectors.hdf5", "--top", *pair, "-q")
