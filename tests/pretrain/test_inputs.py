"""Runs that read word ids or vectors in place of characters: what is read, trained, saved, embedded, evaluated."""

import numpy as np
import pytest
import torch

from elmo_fast import ElmoEmbedder
from elmo_fast.checkpoints import load_folder
from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.language_model import make_input_reader, make_language_model
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import SENTENCES, quiet, toy_config, toy_corpus

WIDTH = 8


def trained(folder, report=quiet, **changes):
    """A finished run of the toy text."""
    return pretrain(toy_config(folder, **changes), report=report)


def vectors_file(path, words, width=WIDTH):
    """GloVe's text format: random vectors of some words; what was written, by word."""
    rng = np.random.default_rng(5)
    made = {word: rng.normal(0, 0.5, width).round(4).astype(np.float32) for word in words}
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in made.items()), encoding="utf-8")
    return made


def test_types_are_read_as_ids_and_others_as_unk():
    corpus, config = toy_corpus(), toy_config(input="words")
    model = make_language_model(config, len(corpus.vocabulary))
    read = make_input_reader(model.options, corpus, "cpu")
    types = torch.arange(len(corpus.types))
    known = len(corpus.vocabulary)
    assert read(types)[:known].tolist() == list(range(1, known + 1))
    assert set(read(types)[known:].tolist()) == {corpus.vocabulary.unk + 1}
    assert len(types) > known


def test_a_run_of_word_ids_is_saved_converted_and_embeds(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(SENTENCES) + "\n")
    run = trained(tmp_path, input="words", max_steps=60, n_epochs=99, heldout_prefix=str(text), dropout=0.0)
    assert run.heldout.mean < 0.8 * len(run.vocabulary)
    state, options = load_folder(run.folder)
    assert options.char_cnn is None
    assert state["_word_embedding.weight"].shape == (len(run.vocabulary) + 1, WIDTH)
    assert not state["_word_embedding.weight"][0].any()
    outputs = [tmp_path / "own.hdf5", tmp_path / "converted.hdf5"]
    hdf5 = str(tmp_path / "bilm-tf")
    assert main(["convert", "--model", str(run.folder), "--to", "hdf5", "--out_dir", hdf5]) == 0
    for folder, output in zip((str(run.folder), hdf5), outputs, strict=True):
        assert main(["embed", str(text), str(output), "--all", "--model", folder]) == 0
    import h5py

    with h5py.File(outputs[0]) as own, h5py.File(outputs[1]) as converted:
        assert own["0"].shape == (3, 7, 2 * WIDTH)
        np.testing.assert_allclose(own["3"][()], converted["3"][()], rtol=1e-5, atol=1e-6)
    unknown, words = ElmoEmbedder.from_pretrained(run.folder, stateful=False).embed_batch([["zebra"], ["<UNK>"]])
    np.testing.assert_array_equal(unknown, words)


def test_a_run_without_a_step_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="no step was taken: the model in .* has the weights that the run began with"):
        run = trained(tmp_path, max_seconds=1e-9)
    assert (run.steps, run.stopped_by) == (0, "time")


@pytest.mark.parametrize(("rows", "hints"), [(3, 0), (100, 1)])
def test_a_text_shorter_than_a_step_has_a_hint(tmp_path, rows, hints):
    lines = []
    trained(tmp_path, lines.append, batch_size=rows, max_steps=1)
    expected = "HINT   the text fills 44 of a step's 500 places: its 100 rows have at most 1 words"
    assert sum(line.startswith(expected) for line in lines) == hints


@pytest.mark.parametrize("optimizer", ["adagrad", "adamw"])
@pytest.mark.parametrize("train", [False, True])
def test_vectors_of_a_file_fill_the_table_and_missing_ones_are_sampled(tmp_path, train, optimizer):
    """Frozen vectors stay bit for bit, also when the run goes on without the file; trained ones move."""
    vectors, lines = tmp_path / "vectors.txt", []
    made = vectors_file(vectors, ["the", "cat", "on", "nowhere", "<UNK>"])
    config = {"input": "vectors", "vectors_file": str(vectors), "train_vectors": train}
    run = trained(tmp_path, lines.append, optimiser=optimizer, **config)
    words = run.vocabulary.words
    line = next(line for line in lines if line.startswith("input "))
    assert f"4 of {len(words)} words have a vector" in line
    assert f"{len(words) - 4} have none and are sampled from N(0, " in line
    assert ("none is trained" in line) != train
    table = load_folder(run.folder)[0]["_word_embedding.weight"]
    assert not table[0].any()
    kept = [torch.equal(table[words.index(w) + 1], torch.from_numpy(made[w])) for w in ("the", "cat", "on", "<UNK>")]
    assert all(kept) != train
    drawn = torch.stack([table[i + 1] for i, word in enumerate(words) if word not in made])
    spread = np.std([made[word] for word in ("the", "cat", "on", "<UNK>")])
    assert 0.6 * spread < drawn.std() < 1.5 * spread
    vectors.write_text("no vectors\n")  # they are in the checkpoint
    trained(tmp_path, lines.append, optimiser=optimizer, max_steps=6, **config)
    assert "init   init_from and vectors_file are not read again: the run continues from its checkpoint" in lines
    later = load_folder(run.folder)[0]["_word_embedding.weight"]
    assert torch.equal(later, table) != train


def test_vectors_of_another_width_or_of_other_words_are_refused(tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors_file(vectors, ["the", "cat"], width=5)
    with pytest.raises(
        ElmoFastError, match=r"wanted vectors of projection_dim=8 numbers, found 5; give projection_dim 5"
    ):
        trained(tmp_path, input="vectors", vectors_file=str(vectors))
    vectors_file(vectors, ["other"])
    with pytest.raises(ElmoFastError, match="wanted vectors of the vocabulary's 19 words, found none"):
        trained(tmp_path, input="vectors", vectors_file=str(vectors), save_dir=str(tmp_path / "b"))
