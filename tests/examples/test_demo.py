"""The demonstration's parts, and its whole on a few seconds of training."""

from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.metrics import read_metrics
from examples import demo
from examples.demo import QUERIES
from tests.pretrain.toy import SENTENCES, toy_config

PNG = b"\x89PNG\r\n"


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
    assert read_metrics(tmp_path / "model").heldout, "the picture has no held-out curve"
    assert all((tmp_path / name).read_bytes().startswith(PNG) for name in ("loss.png", "layers.png"))
    output = capsys.readouterr().out
    assert all(str(tmp_path / part) in output for part in demo.PARTS)
    assert "times lower, word frequencies alone: " in output
    assert "activate`, then elmo-fast --help and the commands of README.md" in output
    assert all(f"'{word}' occurs " in output for word, *_ in QUERIES)
    assert all(f"  {word} " in output for word in demo.UNSEEN)
