"""elmo-fast static: train, eval, neighbours, convert, export."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.static import (
    Vectors,
    evaluate_analogies,
    evaluate_similarity,
    load_vectors,
    nearest_words,
    save_vectors,
    train_glove,
)
from tests.cli.conftest import SENTENCES, pair, ran, refused
from tests.support.command_line import elmo_fast

needs_gensim = pytest.mark.skipif(importlib.util.find_spec("gensim") is None, reason="gensim is not installed")


@pytest.fixture
def vectors(tmp_path, monkeypatch):
    """A file of seven words, in the working folder."""
    monkeypatch.chdir(tmp_path)
    words = ["rome", "italy", "paris", "france", "Berlin", "cat", "dog"]
    vectors = Vectors(words, np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32))
    save_vectors(vectors, "v.txt")
    return vectors


def test_convert_moves_no_number(vectors):
    """Text -> binary -> own -> gzipped GloVe, and what is left out by --limit."""
    before = "v.txt"
    for name, more in [("a.bin", []), ("a.safetensors", []), ("a.vec.gz", ["--output_format", "glove"])]:
        assert "7 words, 4 numbers each" in ran("static", "convert", before, "--output", name, *more).stderr
        assert load_vectors(name).matrix.tobytes() == vectors.matrix.tobytes()
        before = name
    ran("static", "convert", before, "--limit", 2, "--output", "b.bin")
    assert load_vectors("b.bin").words == ["rome", "italy"]


def test_neighbours(vectors):
    """Those of the library, printed and as JSON."""
    words = ["static", "neighbours", "v.txt", "--topn", 3, "-q", "--results", "n.json", "--words"]
    printed = ran(*words, "rome dog").stdout
    assert ran(*words, "rome", "dog").stdout == printed
    asked = dict(zip(("rome", "dog"), nearest_words(vectors, ["rome", "dog"], 3), strict=True))
    rows = {word: [f"{n:>3}  {c:.4f}  {w}" for n, (w, c) in enumerate(near, 1)] for word, near in asked.items()}
    assert printed.splitlines() == [line for word, lines in rows.items() for line in (word, *lines)]
    actual = json.loads(pathlib.Path("n.json").read_text())
    assert {word: [(o["word"], o["cosine"]) for o in near] for word, near in actual.items()} == asked


def test_a_word_with_a_blank_in_it_is_one_word(tmp_path):
    """The own format holds such words; parted where the file has no such word."""
    save_vectors(Vectors(["New York", "Rome", "New"], np.eye(3, dtype=np.float32)), tmp_path / "v.safetensors")
    output = ran("static", "neighbours", tmp_path / "v.safetensors", "-q", "--words", "New York", "New Rome").stdout
    assert [line for line in output.splitlines() if line[0] != " "] == ["New York", "New", "Rome"]


def test_an_analogy(tmp_path):
    """Words and signs in turn, as one argument or several; a sign may be a word where a word stands."""
    plane = {"king": (1, 1), "man": (1, 0), "woman": (0, 1), "queen": (0, 2), "-": (3, 1)}
    save_vectors(Vectors(list(plane), np.array(list(plane.values()), np.float32)), tmp_path / "v.txt")
    asked = ["static", "neighbours", tmp_path / "v.txt", "-q", "--topn", 1]
    for words in (["king - man + woman"], ["king", "-", "man", "+", "woman"]):
        lines = ran(*asked, "--results", tmp_path / "r.json", "--analogy", *words).stdout.splitlines()
        assert (lines[0], lines[1].split()[::2]) == ("king - man + woman", ["1", "queen"])
        assert json.loads((tmp_path / "r.json").read_text())["king - man + woman"][0]["word"] == "queen"
    lines = ran(*asked, "--analogy", "- - king", "--words", "man").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["man", "-", "king", "man"]
    for wrong in ("king man", "king -", "king - man woman"):
        message = f"with + or - between them, separated by spaces, such as king - man + woman; got '{wrong}'"
        refused(elmo_fast(*asked, "--analogy", wrong), message)


@pytest.mark.filterwarnings("default:.*are skipped")
def test_eval_warns_once_of_a_file(vectors, tmp_path):
    """And not again in the row of one-hot vectors."""
    (tmp_path / "p.tsv").write_text("rome\tparis\t8\ncat\tdog\ncat\trome\t1\nparis\tcat\t2\n")
    assert ran("static", "eval", "v.txt", "--pairs", tmp_path / "p.tsv").stderr.count("are skipped (line 2)") == 1


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_eval_of_own_sets(vectors, tmp_path):
    """The tables and the JSON hold what the functions return."""
    questions, pairs = tmp_path / "q.txt", tmp_path / "p.tsv"
    questions.write_text(": capitals\nROME italy paris france\nrome italy oslo norway\n")
    pairs.write_text("rome\tparis\t8\ncat\tdog\t7\ncat\tRome\t1\ncat\tcow\t6\n")
    words = ["static", "eval", "v.txt", "--analogies", questions, "--pairs", pairs, "-q", "--results", "r.json"]
    output = ran(*words).stdout
    expected = evaluate_similarity(vectors, pairs)
    row = f"p.tsv       {expected.pearson:8.4f}  {expected.spearman:8.4f}     75.0%  3 / 4             4"
    assert f"{row}\n  one-hot       none      none     75.0%  3 / 4             7\n" in output
    assert "capitals" in output
    assert "/ 1 / 2" in output
    assert json.loads((tmp_path / "r.json").read_text()) == {
        "vectors": "v.txt",
        "words": 7,
        "dimension": 4,
        "similarity": {
            "p.tsv": expected.as_dict(),
            "p.tsv, one-hot": evaluate_similarity(vectors, pairs, one_hot=True).as_dict(),
        },
        "analogies": evaluate_analogies(vectors, questions).as_dict(),
    }
    ran(*words, "--case_insensitive", "false", "--unknown_as_wrong", "true")
    actual = json.loads((tmp_path / "r.json").read_text())
    assert (actual["similarity"]["p.tsv"]["compared"], actual["analogies"]["total"]["asked"]) == (4, 2)


@needs_gensim
def test_train_then_eval_with_the_bundled_sets(tmp_path, monkeypatch):
    """Every algorithm writes vectors that eval takes; a line a pass, and settings in JSON."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = ["tiger", "cat", "Athens", "Greece", "Oslo", "Norway", "love", "sex", "old", "new"]
    (tmp_path / "text.txt").write_text("\n".join(" ".join(rng.choice(words, 8)) for _ in range(60)) + "\n")
    for algo, more, expected in (
        ("sg", ["--objective", "ns"], "words/s\n"),
        ("cbow", ["--objective", "hs"], "words/s\n"),
        ("glove", [], "entries/s, loss 0."),
    ):
        words = ["static", "train", "--train_prefix", "text.txt", "--algo", algo, *more, "--dimension", 6]
        printed = ran(*words, "--epochs", 2, "--output", f"{algo}.bin", "--results", "r.json").stderr
        assert "pass 2 of 2: " in printed
        assert expected in printed
        actual = json.loads((tmp_path / "r.json").read_text())
        assert (actual["words"], actual["algo"], actual["settings"].get("objective")) == (
            10,
            algo,
            (more or [None])[-1],
        )
        assert len(actual["passes"]) == actual["settings"]["epochs"] == 2
        assert load_vectors(f"{algo}.bin").matrix.shape == (10, 6)
    printed = ran("static", "eval", "glove.bin", "-q").stdout
    for name in ("wordsim353.tsv", "simlex999.txt", "capital-common-countries", "semantic", "syntactic", "total"):
        assert name in printed
    assert "/ 2 / 506" in printed  # Athens Greece Oslo Norway, and the other way round


def test_every_option_of_glove_arrives(tmp_path, monkeypatch):
    """The file holds what train_glove returns for the same settings; the words of --init_from are counted."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "text.txt").write_text("\n".join(" ".join(rng.choice(list("abcdef"), 8)) for _ in range(60)) + "\n")
    start = Vectors(["a", "z"], np.ones((2, 4), np.float32))
    save_vectors(start, "start.txt")
    options = ["--dimension", 4, "--epochs", 1, "--max_vocab_size", 5, "--alpha", 0.5, "--symmetric", "false"]
    options += ["--add_contexts", "false", "--init_from", "start.txt", "--threads", 1, "--output", "v.safetensors"]
    printed = ran("static", "train", "--train_prefix", "text.txt", "--algo", "glove", *options).stderr
    settings = {"dimension": 4, "epochs": 1, "max_vocab_size": 5, "alpha": 0.5, "symmetric": False}
    expected = train_glove("text.txt", **settings, add_contexts=False, init_from=start, threads=1)
    actual = load_vectors("v.safetensors")
    assert actual.words == expected.words
    assert actual.matrix.tobytes() == expected.matrix.tobytes()
    assert f"{int('a' in expected)} of 5 words continued from start.txt" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--algo glove --negative 9", "--negative does nothing with --algo glove; leave it out"),
        ("--algo sg --alpha 1", "--alpha does nothing with --algo sg; leave it out"),
        ("--objective hs --negative 9", "--negative does nothing with --objective hs; leave it out"),
    ],
)
def test_options_of_another_algorithm_are_refused(text, tmp_path, words, message):
    """And not left out in silence; nothing is trained."""
    train = ["static", "train", "--train_prefix", text, "--output", tmp_path / "v.bin"]
    refused(elmo_fast(*train, *words.split()), message)
    assert not (tmp_path / "v.bin").exists()


def test_export_of_a_vocabulary_and_of_a_text(toy, text, tmp_path):
    """Layer 0 by itself, a mean over the text; markers get no vector."""
    output = tmp_path / "v.bin"
    model = ["static", "export", *pair(toy), "-q", "--output", output]
    for words in ("cat\ndog\n", "\ufeffcat\n\ndog\ncat\n", "<S>\n</S>\n<UNK>\ncat\ndog\n"):
        (tmp_path / "vocab.txt").write_text(words)
        ran(*model, "--vocab_file", tmp_path / "vocab.txt")
        assert load_vectors(output).words == ["cat", "dog"]
    embedder, actual = ElmoEmbedder(*toy, stateful=False), load_vectors(output)
    np.testing.assert_allclose(np.tile(actual.vector("cat"), 2), embedder.embed_sentence(["cat"])[0, 0], atol=1e-6)
    places = [(s.split(), s.split().index("cat")) for s in SENTENCES if "cat" in s.split()]
    for layer, pick in (("top", lambda v: v[-1]), ("1", lambda v: v[1]), ("average", lambda v: v.mean(0))):
        ran(*model, "--corpus", text, "--layer", layer, "--min_count", 2)
        actual = load_vectors(output)
        assert actual.words == [".", "The", "cat", "sat"]
        expected = np.mean([pick(embedder.embed_sentence(s))[i] for s, i in places], axis=0)
        np.testing.assert_allclose(actual.vector("cat"), expected, atol=2e-6)
