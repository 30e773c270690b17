"""--tokenizer: what `prepare` splits with is stored with the model, and every command that reads text takes it."""

import json
import warnings

import h5py
import numpy as np
import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import stored_tokenizer
from elmo_fast.corpus import open_corpus
from tests.cli.conftest import pair
from tests.cli.conftest import ran as run
from tests.support.command_line import elmo_fast

TEXT = "".join(f"12:00:{i:02} worker-{i} took {7 * i}ms in /srv/data/{i}.bin\n" for i in range(60))
TOKENS = ["<TIME>", "worker", "-", "<NUM>", "took", "<NUM>", "ms", "in", "<PATH>"]
TINY = ("--dim", 8, "--projection_dim", 4, "--n_layers", 1, "--n_highway", 0, "--filters", "[[1, 4]]", "--threads", 1,
        "--loss", "full_softmax", "--char_embedding_dim", 4, "--batch_size", 2, "--max_steps", 2,
        "--min_count", 1)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text, the corpus prepared from it, and a model trained on that."""
    folder = tmp_path_factory.mktemp("logs")
    (folder / "text.log").write_text(TEXT)
    reading = ("--train_prefix", folder / "text.log", "--tokenizer", "logs")
    run("prepare", *reading, "--out_dir", folder / "corpus", "--min_count", 1, "-q")
    run("vocab", *reading, "--vocab_file", folder / "vocab.txt", "--min_count", 1, "-q")
    texts = ("--train_prefix", folder / "corpus", "--heldout_prefix", folder / "text.log")
    run("pretrain", *texts, "--save_dir", folder / "run", *TINY, "-q")
    return folder


def test_the_corpus_and_the_vocabulary_have_placeholders(folder):
    assert open_corpus(folder / "corpus").tokenizer == "logs"
    assert set((folder / "vocab.txt").read_text().split()) == {*TOKENS, "<S>", "</S>", "<UNK>"}


def test_the_model_stores_it_and_keeps_it_through_a_conversion(folder, tmp_path):
    run("convert", "--model", folder / "run", "--out_dir", tmp_path / "model", "--to", "safetensors")
    assert stored_tokenizer(folder / "run") == stored_tokenizer(tmp_path / "model") == "logs"


def test_embed_takes_the_one_of_the_model(folder, tmp_path):
    command = ("embed", folder / "text.log", "--average", "--model", folder / "run", "-q")
    run(*command, tmp_path / "a.npz")
    run(*command, tmp_path / "b.npz", "--tokenizer", "whitespace")
    ElmoEmbedder.from_pretrained(folder / "run").embed_file(folder / "text.log", tmp_path / "c.npz", "average")
    files = [np.load(tmp_path / f"{name}.npz") for name in "abc"]
    counts = [np.diff(file["offsets"])[0] for file in files]
    assert counts == [len(TOKENS), len(TEXT.splitlines()[0].split()), len(TOKENS)]
    assert [json.loads(str(file["metadata"]))["tokenizer"] for file in files] == ["logs", "whitespace", "logs"]


def test_raw_text_without_a_tokenizer_is_noted(toy, tmp_path):
    """Where most lines are raw text, and neither the command nor the model names a tokenizer; the vectors stay."""
    raw, tokens = "I like Berlin.\n\nYes, do you?\nSo do I .\n", "I like Berlin.\n\nYes , do you ?\nSo do I .\n"
    for text, words, noted in (
        (raw, [], True), (raw, ["--tokenizer", "whitespace"], False), (raw, ["--tokenizer", "basic"], False),
        (raw, ["-q"], True), (tokens, ["-q"], False),
    ):  # fmt: skip
        (tmp_path / "in.txt").write_text(text)
        with warnings.catch_warnings(action="default"):  # of a blank line too
            done = run("embed", tmp_path / "in.txt", tmp_path / "out.hdf5", *pair(toy), *words)
        assert ("warning: line 1 looks like raw text; --tokenizer basic splits off" in done.stderr) == noted
        with h5py.File(tmp_path / "out.hdf5") as file:
            assert file["0"].shape[1] == (4 if "basic" in words else 3)


def test_eval_neighbours_and_plot_take_it_too(folder, tmp_path):
    model, text = ("--model", folder / "run"), folder / "text.log"
    files = ("--output", tmp_path / "e.json", "--per_sentence", tmp_path / "e.tsv")
    run("eval", *model, "--test_prefix", text, *files, "-q")
    assert json.loads((tmp_path / "e.json").read_text())["out_of_vocabulary"] == 0
    assert (tmp_path / "e.tsv").read_text().splitlines()[1].split("\t")[1] == str(len(TOKENS))
    actual = run(
        "neighbours", *model, "--corpus", text, "--query", "at 11:59 took 3", "--index", 1, "--topn", 1, "-q"
    ).stdout
    assert "at [<TIME>] took <NUM>" in actual


def test_a_different_one_than_that_of_a_prepared_corpus_is_an_error(folder, tmp_path):
    done = elmo_fast(
        "pretrain", "--train_prefix", folder / "corpus", "--save_dir", tmp_path, "--tokenizer", "basic", *TINY
    )
    assert done.returncode == 2
    assert "was prepared with tokenizer logs, not basic" in done.stderr
    text = ("--train_prefix", folder / "text.log", "--save_dir", folder, "--tokenizer", "basic", "--dry_run")
    assert "was prepared with tokenizer logs, not basic" in elmo_fast("pretrain", *text, *TINY).stderr
    done = elmo_fast("prepare", "--train_prefix", folder / "text.log", "--out_dir", folder / "corpus", "--min_count", 1)
    assert "tokenizer was 'logs', now None" in done.stderr


def test_pretraining_continues_with_it(folder, tmp_path):
    """From text: a run resumes with the tokenizer it began with, and init_from brings that of its model."""
    text = ("--train_prefix", folder / "text.log", "--save_dir", tmp_path / "run")
    run("pretrain", *text, "--init_from", folder / "run", *TINY, "-q")
    assert stored_tokenizer(tmp_path / "run") == "logs"
    run("pretrain", *text, *TINY, "--max_steps", 3, "-q")
    assert stored_tokenizer(tmp_path / "run") == "logs"
