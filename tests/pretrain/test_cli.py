"""The commands from outside."""

import yaml

from tests.pretrain.toy import SENTENCES, toy_config
from tests.support.command_line import elmo_fast


def test_pretrain_then_eval(tmp_path):
    """A file of options, flags over it in either spelling, the model that comes out, and its perplexity."""
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(toy_config(tmp_path).flat()))
    done = elmo_fast(
        "pretrain", "--config", tmp_path / "toy.yaml", "--max-steps", 6, "--n_epochs=9", "-s", tmp_path / "model"
    )
    assert done.returncode == 0, done.stderr
    assert "vocab  the softmax has 19 words (min_count 1); 0 of" in done.stderr
    assert "step      6 (100.0%)" in done.stderr
    assert yaml.safe_load((tmp_path / "model" / "pretrain.yaml").read_text())["max_steps"] == 6
    (tmp_path / "heldout.txt").write_text(SENTENCES[0] + "\n\n" + "the unheard-of cat\n")
    done = elmo_fast("eval", "--save_dir", tmp_path / "model", "--test_prefix", tmp_path / "heldout.txt")
    assert (done.returncode, done.stdout.startswith("perplexity ")) == (0, True), done.stderr


def test_the_flag_of_bilm_tf_for_gpus_is_one_message():
    done = elmo_fast("pretrain", "--n_gpus", "4")
    expected = "torchrun --standalone --nproc-per-node=4 -m elmo_fast pretrain"
    assert (done.returncode, expected in done.stderr) == (2, True), done.stderr
