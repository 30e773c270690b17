"""The demonstration's parts, and its whole on a few seconds of training."""

import numpy as np
import torch

from elmo_fast.pretrain.config import PretrainConfig
from examples import demo
from examples.demo import QUERIES, WordNeighbours, sentences
from tests.pretrain.toy import SENTENCES, toy_config

PNG = b"\x89PNG\r\n"


def test_prose_is_cut_into_sentences_and_examples_of_code_are_left_out():
    text = "Return the name. It isn't `foo_bar`,\nsee there.\n\n>>> code(1)\n1\n\nToo short.\n\n- + - + - + word"
    assert list(sentences(text)) == [
        ("Return", "the", "name", "."),
        ("It", "isn't", "`", "foo_bar", "`", ",", "see", "there", "."),
    ]


def test_every_query_holds_its_word():
    assert all(word in sentence.split() for word, *uses in QUERIES for _, sentence in uses)


def test_nearest_tokens_are_by_cosine_from_the_mean_one_per_word():
    class Fixed:
        def embed_sentences(self, texts):
            return [np.array([[[1, 0], [0, 1], [0.9, 0.1]]], np.float32), np.array([[[-1, -1], [1, 0]]], np.float32)]

    vectors = WordNeighbours(Fixed(), [["a", "b", "c"], ["d", "a"]], 0)
    actual = vectors.nearest_words(np.array([1, 0.05], np.float32), 3)
    assert list(actual) == ["a", "c", "b"]
    assert actual["c"][1] == "a b [c]"
    assert list(vectors.nearest_words(np.array([1, 0.05], np.float32), 1, but="a")) == ["c"]


def test_a_probe_finds_the_layer_that_holds_the_answer():
    torch.manual_seed(0)
    layers = [torch.randn(400, 6) for _ in range(3)]
    labels = (layers[1][:, 0] > 0).float()
    actual = demo.train_probe("middle", layers, layers, labels, labels)
    assert actual.weights[1] > 0.8
    assert actual.accuracy > 0.9 > actual.majority


def toy_demo(monkeypatch, tmp_path, steps):
    """main() on the toy text, its own folder holding a file of the user's."""

    def write_corpus(folder):
        queries = [sentence for _, *uses in QUERIES for _, sentence in uses]
        for name in ("train.txt", "heldout.txt"):
            (folder / name).write_text("\n".join([*SENTENCES, *queries]) + "\n")
        return folder / "train.txt", folder / "heldout.txt"

    def configuration(folder, seconds) -> PretrainConfig:
        return toy_config(
            train_prefix=str(folder / "train.txt"), save_dir=str(folder / "model"), max_steps=steps, n_epochs=10**6,
            dropout=0.0, dim=32, projection_dim=16, n_negative_samples_batch=20,
        )  # fmt: skip

    monkeypatch.setattr(demo, "write_corpus", write_corpus)
    monkeypatch.setattr(demo, "configuration", configuration)
    monkeypatch.setattr(demo, "STEPS", 3)
    (tmp_path / "mine.txt").write_text("kept")
    return demo.main(["--folder", str(tmp_path)])


def test_the_whole_demonstration_succeeds_only_when_perplexity_fell(monkeypatch, tmp_path, capsys):
    assert toy_demo(monkeypatch, tmp_path, 1) == 1
    assert "did not fall" in capsys.readouterr().err
    assert toy_demo(monkeypatch, tmp_path, 300) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*demo.PARTS, "mine.txt"}
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in ("loss.png", "layers.png"))
    output = capsys.readouterr().out
    assert all(str(tmp_path / part) in output for part in demo.PARTS)
    assert "times lower" in output
