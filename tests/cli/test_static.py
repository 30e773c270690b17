"""elmo-fast static: train, eval, neighbours, convert, export."""

import importlib.util
import json

import numpy as np
import pytest

from elmo_fast.cli.main import main
from elmo_fast.modules import ElmoEmbedder
from elmo_fast.static import Vectors, evaluate_analogies, evaluate_similarity, load_vectors, save_vectors
from tests.cli.conftest import SENTENCES, pair

needs_gensim = pytest.mark.skipif(importlib.util.find_spec("gensim") is None, reason="gensim is not installed")


@pytest.fixture
def vectors(tmp_path):
    """A file of seven words."""
    words = ["rome", "italy", "paris", "france", "Berlin", "cat", "dog"]
    vectors = Vectors(words, np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32))
    save_vectors(vectors, tmp_path / "v.txt")
    return vectors


def test_convert_moves_no_number(vectors, tmp_path, capsys):
    """Text -> binary -> own -> gzipped GloVe, and what is left out by --limit."""
    before = "v.txt"
    for name, more in [("a.bin", []), ("a.safetensors", []), ("a.vec.gz", ["--output_format", "glove"])]:
        assert main(["static", "convert", str(tmp_path / before), "--output", str(tmp_path / name), *more]) == 0
        assert load_vectors(tmp_path / name).matrix.tobytes() == vectors.matrix.tobytes()
        before = name
    assert "7 words, 4 numbers each" in capsys.readouterr().err
    assert main(["static", "convert", str(tmp_path / before), "--limit", "2", "--output", str(tmp_path / "b.bin")]) == 0
    assert load_vectors(tmp_path / "b.bin").words == ["rome", "italy"]
    assert main(["static", "convert", str(tmp_path / before), "--output", str(tmp_path / "c.dat")]) == 2
    assert "the name must end in .bin" in capsys.readouterr().err


def test_neighbours(vectors, tmp_path, capsys):
    """Those of gensim's rule, printed and as JSON."""
    results = tmp_path / "n.json"
    words = ["static", "neighbours", str(tmp_path / "v.txt"), "--topn", "3", "-q"]
    assert main([*words, "--words", "rome dog"]) == 0
    together = capsys.readouterr().out
    assert main([*words, "--results", str(results), "--words", "rome", "dog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    assert together.splitlines() == lines
    found = json.loads(results.read_text())
    for start, word in ((0, "rome"), (4, "dog")):
        cosines = unit @ unit[vectors.index[word]]
        wanted = [row for row in np.argsort(-cosines) if vectors.words[row] != word][:3]
        assert lines[start] == word
        assert [line.split()[2] for line in lines[start + 1 : start + 4]] == [vectors.words[row] for row in wanted]
        assert [float(line.split()[1]) for line in lines[start + 1 : start + 4]] == pytest.approx(
            cosines[wanted], abs=1e-4
        )
        assert [item["word"] for item in found[word]] == [vectors.words[row] for row in wanted]
    assert main([*words, "--words", "berlin"]) == 2
    assert "'berlin' has no vector; 'Berlin' has one" in capsys.readouterr().err
    assert main([*words, "--words", " "]) == 2
    assert "give --words, as --words king night, or --analogy" in capsys.readouterr().err


def test_a_word_with_a_blank_in_it_is_one_word(tmp_path, capsys):
    """The own format holds such words; parted where the file has no such word."""
    save_vectors(Vectors(["New York", "Rome", "New"], np.eye(3, dtype=np.float32)), tmp_path / "v.safetensors")
    assert main(["static", "neighbours", str(tmp_path / "v.safetensors"), "-q", "--words", "New York", "New Rome"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] != " "] == ["New York", "New", "Rome"]


def test_an_analogy(tmp_path, capsys):
    """Words and signs in turn, as one argument or several; a sign may be a word where a word stands."""
    plane = {"king": (1, 1), "man": (1, 0), "woman": (0, 1), "queen": (0, 2), "-": (3, 1)}
    save_vectors(Vectors(list(plane), np.array(list(plane.values()), np.float32)), tmp_path / "v.txt")
    asked = ["static", "neighbours", str(tmp_path / "v.txt"), "-q", "--topn", "1"]
    for words in (["king - man + woman"], ["king", "-", "man", "+", "woman"]):
        assert main([*asked, "--results", str(tmp_path / "r.json"), "--analogy", *words]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[0] == "king - man + woman"
        assert out[1].split()[::2] == ["1", "queen"]
        assert json.loads((tmp_path / "r.json").read_text())["king - man + woman"][0]["word"] == "queen"
    assert main([*asked, "--analogy", "- - king", "--words", "man"]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["man", "-", "king", "man"]
    for wrong in ("king man", "king -", "king - man woman"):
        assert main([*asked, "--analogy", wrong]) == 2
        assert f"with + or - between them, separated by spaces, such as king - man + woman; got '{wrong}'" in (
            capsys.readouterr().err
        )


def test_eval_of_own_sets(vectors, tmp_path, capsys):
    """The tables and the JSON hold what the functions return."""
    questions, pairs, results = tmp_path / "q.txt", tmp_path / "p.tsv", tmp_path / "r.json"
    questions.write_text(": capitals\nROME italy paris france\nrome italy oslo norway\n")
    pairs.write_text("rome\tparis\t8\ncat\tdog\t7\ncat\tRome\t1\ncat\tcow\t6\n")
    words = ["static", "eval", str(tmp_path / "v.txt"), "--analogies", str(questions), "--pairs", str(pairs), "-q"]
    assert main([*words, "--results", str(results)]) == 0
    out = capsys.readouterr().out
    wanted = evaluate_similarity(vectors, pairs)
    numbers = f"{wanted.pearson:8.4f}  {wanted.spearman:8.4f}     75.0%  3 / 4"
    assert f"p.tsv       {numbers}" in out
    assert "capitals" in out
    assert "/ 1 / 2" in out
    found = json.loads(results.read_text())
    assert found["similarity"]["p.tsv"] == wanted.as_dict()
    assert found["analogies"] == evaluate_analogies(vectors, questions).as_dict()
    assert (found["words"], found["dimension"]) == (7, 4)
    assert main([*words, "--case_insensitive", "false", "--unknown_as_wrong", "true", "--results", str(results)]) == 0
    assert json.loads(results.read_text())["similarity"]["p.tsv"]["compared"] == 4
    assert json.loads(results.read_text())["analogies"]["total"]["asked"] == 2


@needs_gensim
def test_train_then_eval_with_the_bundled_sets(tmp_path, capsys):
    """Every algorithm writes vectors that eval takes; a line a pass, and settings in JSON."""
    text = tmp_path / "text.txt"
    rng = np.random.default_rng(0)
    words = ["tiger", "cat", "Athens", "Greece", "Oslo", "Norway", "love", "sex", "old", "new"]
    text.write_text("\n".join(" ".join(rng.choice(words, 8)) for _ in range(60)) + "\n")
    for algo, objective in [("sg", "ns"), ("cbow", "hs"), ("glove", None)]:
        output, results = tmp_path / f"{algo}.bin", tmp_path / "r.json"
        words = ["static", "train", "--train_prefix", str(text), "--algo", algo]
        words += [] if objective is None else ["--objective", objective]
        words += ["--dimension", "6", "--epochs", "2", "--output", str(output), "--results", str(results)]
        assert main(words) == 0
        assert "pass 2 of 2: " in (err := capsys.readouterr().err)
        assert ("entries/s, loss 0." if algo == "glove" else "words/s\n") in err
        found = json.loads(results.read_text())
        assert (found["words"], found["algo"], found["settings"].get("objective")) == (10, algo, objective)
        assert len(found["passes"]) == found["settings"]["epochs"] == 2
        assert load_vectors(output).matrix.shape == (10, 6)
    assert main(["static", "eval", str(output), "-q"]) == 0
    out = capsys.readouterr().out
    for name in ("wordsim353.tsv", "simlex999.txt", "capital-common-countries", "semantic", "syntactic", "total"):
        assert name in out
    assert "/ 2 / 506" in out  # Athens Greece Oslo Norway, and the other way round
    assert main([*words[:3], str(tmp_path / "absent"), "--output", str(tmp_path / "x.bin")]) == 2
    assert main([*words[:3], str(text), "--output", str(tmp_path / "x.dat")]) == 2


@pytest.mark.parametrize(
    ("algo", "option"), [("glove", ["--objective", "hs"]), ("glove", ["--negative", "9"]), ("sg", ["--x_max", "10"])]
)
def test_options_of_another_algorithm_are_refused(text, tmp_path, capsys, algo, option):
    """And not left out in silence; nothing is trained."""
    words = ["static", "train", "--train_prefix", text, "--output", str(tmp_path / "v.bin"), "--algo", algo]
    assert main([*words, *option]) == 2
    assert f"{option[0]} does nothing with --algo {algo}; leave it out" in capsys.readouterr().err
    assert not (tmp_path / "v.bin").exists()


def test_export_of_a_vocabulary_and_of_a_text(toy, text, tmp_path, capsys):
    """Layer 0 by itself, a mean over the text; markers get no vector."""
    model = ["static", "export", *pair(toy), "-q"]
    vocabulary, output = tmp_path / "vocab.txt", tmp_path / "v.bin"
    vocabulary.write_text("<S>\n</S>\n<UNK>\ncat\ndog\n")
    assert main([*model, "--vocab_file", str(vocabulary), "--output", str(output)]) == 0
    embedder = ElmoEmbedder(*toy, stateful=False)
    found = load_vectors(output)
    assert found.words == ["cat", "dog"]
    np.testing.assert_allclose(np.tile(found.vector("cat"), 2), embedder.embed_sentence(["cat"])[0, 0], atol=1e-6)
    for layer, pick in (("top", lambda v: v[-1]), ("1", lambda v: v[1]), ("average", lambda v: v.mean(0))):
        assert main([*model, "--corpus", text, "--layer", layer, "--min_count", "2", "--output", str(output)]) == 0
        found = load_vectors(output)
        assert found.words == [".", "The", "cat", "sat"]
        sentences = [sentence.split() for sentence in SENTENCES]
        places = [(s, s.index("cat")) for s in sentences if "cat" in s]
        wanted = np.mean([pick(embedder.embed_sentence(s))[i] for s, i in places], axis=0)
        np.testing.assert_allclose(found.vector("cat"), wanted, atol=2e-6)
    capsys.readouterr()
    assert main([*model, "--output", str(output)]) == 2
    assert "give --vocab_file" in capsys.readouterr().err
    assert main([*model, "--corpus", text, "--layer", "9", "--output", str(output)]) == 2
    assert "layers must be" in capsys.readouterr().err
