"""`elmo-fast plot`: each kind from its command to its files, and what it says when that cannot be."""

import json
import sys

import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.static import Vectors, save_vectors
from tests.cli.conftest import pair, ran, refused
from tests.support.command_line import elmo_fast


@pytest.fixture
def model(toy):
    return [*pair(toy), "-q"]


def plotted(*words):
    """Return the output of `plot`: the files."""
    return ran("plot", *words).stdout.split()


@pytest.fixture
def bank(tmp_path, monkeypatch):
    """A text of 30 sentences with one word; the working folder is where it lies."""
    monkeypatch.chdir(tmp_path)
    lines = ["He sat on the bank of the river .\n", "Money lies in the Bank in town .\n", "x\n"]
    (tmp_path / "bank.txt").write_text("".join(lines) * 15)
    return tmp_path


def test_senses_are_written_in_every_format(bank, model):
    outputs = ["s.html", "s.png", "s.svg"]
    assert plotted("senses", *model, "--word", "bank", "--text", "bank.txt", "--output", *outputs) == outputs
    page = (bank / "s.html").read_text()
    assert page.count('class="point ') == 30
    assert "bank.txt, layer 2 of weights.hdf5" in page
    assert all((bank / name).stat().st_size > 5000 for name in outputs)


@pytest.mark.parametrize(
    ("words", "points", "clusters"),
    [
        ("--match-case", 15, 1),  # one sentence fifteen times: nothing to part
        ("--clusters 2", 30, 2),
        ("--most 7 --clustering agglomerative --method tsne", 7, None),
    ],
)
def test_senses_obey_case_number_and_most(bank, model, words, points, clusters):
    plotted("senses", *model, "--word", "bank", "--text", "bank.txt", "--layer", 1, *words.split())
    page = (bank / "senses.html").read_text()
    assert page.count('class="point ') == points
    assert clusters in (None, page.count('aria-pressed="true"'))
    assert ("7 of 30 occurrences in bank.txt" in page) == (points == 7)


def test_words_are_drawn_by_their_letters_and_in_their_sentences(bank, model):
    (bank / "words.txt").write_text("cat\ndog\n\nbird\ncat\nsnake\n")
    for words, output in (
        (["--words", *"abcdef", "--method", "pca", "--output", "a.png"], "a.png"),
        (["--word-file", "words.txt", "--output", "b.svg"], "b.svg"),
        (["--text", "bank.txt", "--count", 20, "--layer", 1], "words.png"),
    ):
        assert plotted("words", *model, *words) == [output]


def test_the_projector_gets_layer_0_of_words_and_any_layer_of_tokens(bank, model, toy):
    embedder = ElmoEmbedder(*toy, stateful=False)

    def written(*words):
        """(rows of the metadata, vectors)"""
        assert plotted("projector", *model, *words, "--out_dir", "p") == ["p"]
        rows = [row.split("\t") for row in (bank / "p" / "metadata.tsv").read_text().splitlines()]
        return rows, np.loadtxt(bank / "p" / "tensors.tsv", dtype=np.float32)

    rows, vectors = written("--words", "river", "town")
    assert rows == [["river"], ["town"]]
    np.testing.assert_allclose(np.tile(vectors, 2), embedder.embed_sentence(["river", "town"])[0], atol=1e-6)
    rows, vectors = written("--text", "bank.txt", "--layer", 2)
    sentence = "He sat on the bank of the river ."
    assert (rows[0], rows[6]) == (["word", "line", "sentence"], ["of", "1", sentence])
    assert len(rows) - 1 == len(vectors) == 15 * 18
    np.testing.assert_allclose(vectors[:9], embedder.embed_sentence(sentence.split())[2], atol=1e-6)


@pytest.mark.filterwarnings("default:.*has no vector for")
def test_words_of_a_vectors_file_are_drawn_and_missing_ones_said(bank):
    vectors = Vectors(list("abcdef"), np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    save_vectors(vectors, "v.txt")
    done = ran("plot", "projector", "--vectors", "v.txt", "--words", "b", "zebra", "a", "--out_dir", "p q")
    assert "v.txt has no vector for 'zebra'" in done.stderr
    assert "tensorboard --logdir 'p q'\n" in done.stderr
    assert (bank / "p q" / "metadata.tsv").read_text() == "b\na\n"
    np.testing.assert_allclose(np.loadtxt(bank / "p q" / "tensors.tsv"), vectors.matrix[[1, 0]], rtol=1e-5)
    plotted("words", "--vectors", "v.txt", "--count", 5, "-q")
    refused(elmo_fast("plot", "words", "--vectors", "v.txt", "--words", "zebra"), "no vector for 'zebra'")


def test_arrows_need_every_word_of_the_pairs(bank):
    """A missing word would pair the others wrongly; a word may be in two pairs."""
    save_vectors(Vectors(list("abcdef"), np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)), "v.txt")
    asked = ["words", "--vectors", "v.txt", "-q", "--arrows"]
    assert plotted(*asked, "--words", *"abac") == ["words.png"]
    refused(elmo_fast("plot", *asked, "--words", *"abyz"), "no vector for 'y', 'z'")
    refused(elmo_fast("plot", *asked), "--arrows needs --words, in pairs")


def test_layers_of_several_sources_have_their_names(bank):
    for name, weights in (("one", [0.5, 0.5]), ("two", [0.1, 0.9])):
        (bank / name).mkdir()
        (bank / name / "results.json").write_text(json.dumps({"mix_weights": {"input": weights}}))
    done = ran("plot", "layers", "one", "two", "--output", "l.png")
    assert done.stdout == "l.png\n"
    assert "one: input  0.500  0.500\ntwo: input  0.100  0.900" in done.stderr


@pytest.mark.parametrize("module", ["sklearn.cluster", "matplotlib.figure"])
def test_without_an_extra_one_sentence_says_what_to_install(bank, model, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    command = ["plot", "senses", *model, "--word", "bank", "--text", "bank.txt", "--output", "s.png"]
    message = f'needs {module.partition(".")[0]}, which is not installed: pip install "elmo-fast[plots]"'
    refused(elmo_fast(*command), message)
    assert not (bank / "s.png").exists()


def test_a_run_named_like_a_kind_is_drawn_by_its_path(bank):
    rows = [{"step": s, "words": 10 * s, "sampled_perplexity": 9.0, "gradient_norm": 1.0} for s in (1, 2)]
    (bank / "words").mkdir()
    (bank / "words" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for words in (["./words"], ["curves", "words"]):
        assert plotted(*words) == ["words/curves.png"]
