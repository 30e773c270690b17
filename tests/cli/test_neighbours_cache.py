"""`elmo-fast neighbours --cache FILE`: the same answers, from a file that is written once and never trusted damaged."""

import pathlib

import pytest

from elmo_fast.cli.main import main
from elmo_fast.modules import BiLM
from tests.cli.conftest import pair
from tests.weights import make_weights


@pytest.fixture
def ask(toy, text, tmp_path, capsys):
    """Runs a query; returns what it prints. words: more options; other_model, corpus: in place of the usual."""

    def run(*words, status=0, model=toy, corpus=text):
        pair = ["--options-file", model[0], "--weight-file", model[1]]
        query = ["--corpus", corpus, "--query", "A cat sat", "--index", "1", "--topn", "4", "-q"]
        assert main(["neighbours", *pair, *query, *words]) == status
        out = capsys.readouterr()
        return out.out if status == 0 else out.err

    return run


@pytest.fixture
def embedded(monkeypatch):
    """How many batches were embedded so far, the query's among them."""
    count = [0]
    plain = BiLM.batch_to_ids

    def counted(self, batch):
        count[0] += 1
        return plain(self, batch)

    monkeypatch.setattr(BiLM, "batch_to_ids", counted)
    return count


@pytest.mark.parametrize("layer", ["top", "all", "average", "0"])
def test_the_answers_are_those_without_a_cache(ask, tmp_path, embedded, layer):
    """Written, and read again: then the query alone is embedded."""
    cache = ["--cache", str(tmp_path / "tokens")]
    plain = ask("--layer", layer)
    assert ask("--layer", layer, *cache) == plain
    before = embedded[0]
    assert ask("--layer", layer, *cache) == plain
    assert embedded[0] == before + 1


def test_a_file_of_all_layers_serves_each(ask, tmp_path, embedded):
    cache = ["--cache", str(tmp_path / "tokens")]
    ask("--layer", "all", *cache)
    before = embedded[0]
    for layer in ("0", "1", "top"):
        assert ask("--layer", layer, *cache) == ask("--layer", layer)
    assert embedded[0] == before + 3 + 3 * 2  # a query each with the cache; a query and the text each without
    assert "is of layers 0, 1, 2 only" in ask("--layer", "average", *cache, status=2)


def test_a_file_of_something_else_is_refused_and_kept(ask, tmp_path):
    """Another text, model or precision, or no such file at all."""
    path = tmp_path / "tokens"
    cache = ["--cache", str(path)]
    ask(*cache)
    whole = path.read_bytes()
    (tmp_path / "other.txt").write_text("The cat sat .\n")
    assert "is of a different corpus" in ask(*cache, corpus=str(tmp_path / "other.txt"), status=2)
    (tmp_path / "model").mkdir()
    other = tuple(map(str, make_weights(tmp_path / "model", seed=5)))
    assert "is of a different model" in ask(*cache, model=other, status=2)
    assert "is of a different precision" in ask(*cache, "--precision", "bfloat16", status=2)
    assert path.read_bytes() == whole
    path.write_text("a diary")
    assert "is no file of token vectors" in ask(*cache, status=2)
    assert path.read_text() == "a diary"


@pytest.mark.filterwarnings("always")
def test_a_damaged_file_is_written_anew(ask, tmp_path):
    """A number changed, an end cut off: said, and the answers are right."""
    path = pathlib.Path(tmp_path / "tokens")
    plain = ask("--cache", str(path))
    whole = path.read_bytes()
    for data in (whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:], whole[:-64]):
        path.write_bytes(data)
        assert ask("--cache", str(path)) == plain
        assert path.read_bytes() == whole


@pytest.mark.filterwarnings("always")
def test_a_damaged_file_is_told(toy, text, tmp_path, capsys):
    """On stderr, as a warning."""
    words = ["neighbours", *pair(toy), "--corpus", text, "--query", "A cat"]
    words += ["--index", "1", "-q", "--cache", str(tmp_path / "tokens")]
    assert main(words) == 0
    whole = (tmp_path / "tokens").read_bytes()
    (tmp_path / "tokens").write_bytes(whole[:-64])
    capsys.readouterr()
    assert main(words) == 0
    assert "warning: " in (err := capsys.readouterr().err)
    assert "damaged: " in err
    assert "it is written again" in err


def test_no_room_is_told_before_anything_is_embedded(ask, tmp_path, monkeypatch, embedded):
    monkeypatch.setattr("elmo_fast.token_files.formats.free_bytes", lambda path: 10)
    assert " and 10 bytes are free" in ask("--cache", str(tmp_path / "tokens"), status=2)
    assert embedded[0] == 1
    assert not (tmp_path / "tokens").exists()
