"""The loop: it learns, saves, stops on request, and rejects what it cannot run."""

import dataclasses
import os
import signal

import pytest
import torch
import yaml
from torch.utils import _pytree as pytree

from elmo_fast._io.locks import folder_lock
from elmo_fast.checkpoints import file_beside, saved_steps
from elmo_fast.cli.main import main
from elmo_fast.corpus import read_corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain import trainer as trainer_module
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model, options_of
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.run import _settings, pretrain
from elmo_fast.pretrain.trainer import Trainer, planned_steps
from elmo_fast.text import Vocabulary
from tests.pretrain.toy import during_step, quiet, rows, same, toy_config, toy_corpus, toy_model


def test_learns_a_tiny_text_by_heart(tmp_path):
    """300 steps over five sentences: what follows is known but for the first words, in both directions."""
    config = toy_config(
        tmp_path, dropout=0.0, dim=32, projection_dim=16, n_negative_samples_batch=12, max_steps=300, log_interval=100,
        n_epochs=1000,
    )  # fmt: skip
    before = evaluate(toy_model(config, toy_corpus()), toy_corpus(), batch_size=3)
    run = pretrain(config, report=quiet)
    corpus = read_corpus(config.data.train_prefix, run.vocabulary)
    after = evaluate(run.model, corpus, batch_size=3)
    assert run.steps == 300
    assert max(after.forward, after.backward) < 2.0 < 5.0 < before.mean
    losses = [row["loss"] for row in rows(run.folder) if "loss" in row]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [({}, range(2, 21, 2)), ({"heldout_interval": 7}, [7, 14, 20]), ({"log_interval": 6}, [6, 12, 18, 20])],
)
def test_held_out_text_is_evaluated_ten_times_a_run_unless_told_otherwise(tmp_path, changes, steps):
    settings = {"max_steps": 20, "n_epochs": 99, "log_interval": 1, "heldout_prefix": str(tmp_path / "train-1*")}
    run = pretrain(toy_config(tmp_path, **settings | changes), report=quiet)
    assert [row["step"] for row in rows(run.folder) if row.get("event") == "heldout"] == list(steps)


def test_the_folder_holds_all_that_is_needed_to_go_on(tmp_path):
    config = toy_config(tmp_path, heldout_prefix=str(tmp_path / "train-1*"))
    run = pretrain(config, report=quiet)
    assert {path.name for path in run.folder.iterdir()} == {
        "config.json", "manifest.json", "model.safetensors", "vocab.txt", "pretrain.yaml", "metrics.jsonl",
        "README.md", "checkpoints", "corpus", ".lock",
    }  # fmt: skip
    model = LanguageModel.from_pretrained(run.folder)
    vocabulary = Vocabulary.read(file_beside(run.folder))
    corpus = read_corpus(str(tmp_path / "train-1*"), vocabulary)
    assert evaluate(model, corpus) == run.heldout
    assert [row["event"] for row in rows(run.folder) if "event" in row] == [
        "heldout", "checkpoint", "heldout", "checkpoint",
    ]  # fmt: skip
    first = rows(run.folder)[0]
    assert (first["step"], first["words"]) == (2, 30)
    assert first["loss"] == pytest.approx((first["loss_forward"] + first["loss_backward"]) / 2)


def test_ten_minutes_of_training_are_saved(tmp_path, monkeypatch):
    """Whatever checkpoint_interval says, so that a killed run resumes."""
    monkeypatch.setattr(trainer_module, "LONGEST_UNSAVED", -1.0)
    run = pretrain(toy_config(tmp_path, max_steps=3, checkpoint_interval=10**6, log_interval=1), report=quiet)
    assert [row["step"] for row in rows(run.folder) if row.get("event") == "checkpoint"] == [1, 2, 3]


def test_the_time_budget_ends_a_run_that_then_saves(tmp_path):
    lines = []
    config = toy_config(tmp_path, max_seconds=0.3, max_steps=None, n_epochs=10**6)
    run = pretrain(config, report=lines.append)
    assert run.stopped_by == "time"
    assert run.seconds >= 0.3
    assert f"in all; max_seconds is reached; model in {run.folder}" in lines[-1]
    LanguageModel.from_pretrained(run.folder)
    progress = next(line for line in lines if line.startswith("step "))
    assert all(piece in progress for piece in ("tokens/s", "loss", "sampled perplexity", "gradient norm", "left"))
    assert any(line.startswith("vocab  the softmax has ") for line in lines)


@pytest.mark.parametrize(("precision", "device"), [("float16", "cuda"), ("tf32", "cpu")])
def test_a_precision_that_cannot_train_there_names_bfloat16(precision, device):
    expected = rf"^precision {precision} .*; got device {device}: give .*bfloat16"
    with pytest.raises(ElmoFastError, match=expected), _settings(toy_config(precision=precision), torch.device(device)):
        pass


def test_planned_steps_count_every_position_unless_told_the_words():
    config = toy_config(max_steps=None, n_epochs=3, batch_size=2, unroll_steps=2)
    assert planned_steps(config, steps_per_epoch=12) == 36
    config.optimizer.n_train_tokens = 22
    assert planned_steps(config, steps_per_epoch=12) == 3 * 5
    config.run.max_steps = 7
    assert planned_steps(config, steps_per_epoch=12) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_step_and_leaves_a_readable_model(tmp_path, number):
    """The signal comes in the middle of a step; the step is finished, and the model saved is the one after it."""
    config = toy_config(tmp_path, max_steps=50, n_epochs=100)
    config.data.heldout_prefix = config.data.train_prefix
    before = signal.getsignal(number)
    with during_step(4, lambda: os.kill(os.getpid(), number)):
        run = pretrain(config, report=quiet)
    assert signal.getsignal(number) is before
    assert (run.stopped_by, run.signal, run.steps) == ("interrupt", number, 4)
    assert same(LanguageModel.from_pretrained(run.folder).checkpoint_state(), run.model.checkpoint_state())
    assert [step for step, _ in saved_steps(run.folder)] == [4]
    assert run.heldout is None
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(config.flat()))
    with during_step(3, lambda: os.kill(os.getpid(), number)):
        assert main(["pretrain", "--config", str(tmp_path / "toy.yaml"), "--device", "cpu"]) == 128 + number
    assert [step for step, _ in saved_steps(run.folder)] == [4, 7]


def test_a_gradient_that_is_no_number_is_seen_by_the_next_save(tmp_path):
    """As on a GPU, where the optimizer leaves the weights as they were until then."""
    config = toy_config(tmp_path, max_steps=50, n_epochs=100, log_interval=5, checkpoint_interval=2)
    corpus = toy_corpus()
    record = RunLog(tmp_path, quiet)
    trainer = Trainer(config, toy_model(config, corpus), corpus, record)
    step, before = trainer.step, []

    def poisoned_step():
        if trainer.progress.step == 2:
            before.append(trainer.model.checkpoint_state())
            before[0] = {name: tensor.clone() for name, tensor in before[0].items()}
            hook = trainer.model.softmax_bias.register_hook(lambda gradient: gradient * float("inf"))
            result = step()
            hook.remove()
            state = trainer.model.checkpoint_state()
            assert all(torch.equal(state[name], tensor) for name, tensor in before[0].items())
            return result
        return step()

    trainer.step = poisoned_step
    with (
        record,
        pytest.raises(
            ElmoFastError, match=r"^step 3 \(batch 3 of epoch 1\).*norm \((nan|inf)\) .*1 updates were left.*earlier"
        ),
    ):
        trainer.train()
    # Step 4 was to be saved before the report: what would be gone on with is looked at first.
    assert [number for number, _ in saved_steps(tmp_path)] == [2]
    saved = LanguageModel.from_pretrained(tmp_path / "checkpoints" / "step-0000002").checkpoint_state()
    assert all(tensor.isfinite().all() for tensor in saved.values())


@pytest.mark.parametrize("loss", ["sampled_softmax", "negative_sampling"])
def test_what_the_host_samples_comes_with_the_batch(tmp_path, loss):
    """A function of seed and step: both directions of step n have the offsets 2n and 2n + 1."""
    config, corpus = toy_config(tmp_path, loss=loss, max_steps=4), toy_corpus()
    model = make_language_model(config, len(corpus.vocabulary), counts=target_counts(corpus))
    trainer = Trainer(config, model, corpus, RunLog(tmp_path, quiet, writes=False))
    batch, cpu = trainer.stream.batch(0, 1), torch.device("cpu")
    expected = [trainer.model.loss.draw(config.run.seed, offset, cpu) for offset in (2, 3)]
    assert all(map(torch.equal, pytree.tree_leaves(batch.samples), pytree.tree_leaves(expected)))


def test_a_run_that_is_lost_before_it_saved_names_no_checkpoints(tmp_path):
    config = toy_config(tmp_path, loss="full_softmax", learning_rate=1e30)
    with pytest.raises(ElmoFastError, match=r"^step 2 \(batch 2 of epoch 1\).* finite; 1 updates were left out; try"):
        pretrain(config, report=quiet)


def test_a_state_that_is_not_finite_is_never_saved(tmp_path):
    """The weights and losses may be finite still; a resumed run would begin with NaN."""
    config = toy_config(tmp_path, max_steps=4)
    corpus = toy_corpus()
    record = RunLog(tmp_path, quiet)
    trainer = Trainer(config, toy_model(config, corpus), corpus, record)
    with record:
        trainer.step()
        trainer.save()
        trainer.step()
        trainer.state[1].fill_(float("nan"))
        with pytest.raises(ElmoFastError, match=r"step 2 the LSTM's state is .* not saved; earlier .*smaller learning"):
            trainer.save()
    assert [number for number, _ in saved_steps(tmp_path)] == [1]


def test_a_folder_with_a_run_is_never_overwritten(tmp_path):
    config = toy_config(tmp_path, resume="never")
    pretrain(config, report=quiet)
    before, after = {}, {}
    for content in (before, after):
        paths = (path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name != ".lock")
        content |= {path: path.read_bytes() for path in paths}
        with pytest.raises(ElmoFastError, match="already holds a run"):
            pretrain(config, report=quiet)
    assert after == before
    with folder_lock(tmp_path / "out"), pytest.raises(ElmoFastError, match="trains there now"):
        pretrain(toy_config(tmp_path), report=quiet)


def test_a_new_model_has_bilm_tfs_spread_of_weights():
    config = toy_config(dim=64, projection_dim=32)
    state = make_language_model(config, 5000).checkpoint_state()
    assert state["softmax.weight"].std().item() == pytest.approx(32**-0.5, rel=0.01)
    assert not state["softmax.bias"].any()
    bound = (6 / (2 * 32 + 4 * 64)) ** 0.5
    matrix = state["_elmo_lstm.forward_layer_1.state_linearity.weight"]
    assert matrix.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert matrix.std().item() == pytest.approx(bound / 3**0.5, rel=0.03)
    assert state["_token_embedder._highways._layers.0.bias"].tolist() == 16 * [0.0] + 16 * [2.0]


def test_a_language_model_is_saved_and_comes_back_with_its_vocabulary(tmp_path):
    """Bit by bit, from its folder or from a run's newest checkpoint; vocab.txt is next to it."""
    model = LanguageModel(options_of(toy_config().model, 7))
    torch.nn.init.normal_(model.softmax_bias)
    words = Vocabulary(["<S>", "</S>", "<UNK>", "the", "cat", "sat", "."])
    folder = tmp_path / "run" / "checkpoints" / "step-2"
    model.save_pretrained(folder, words)
    assert Vocabulary.read(folder / "vocab.txt").words == words.words
    for place in (folder, tmp_path / "run"):
        again = LanguageModel.from_pretrained(place, precision="bfloat16")
        assert again.precision == "bfloat16"
        assert again.options == dataclasses.replace(model.options, vocabulary_sha256=words.digest)
        state = again.checkpoint_state()
        assert all(torch.equal(state[name], tensor) for name, tensor in model.checkpoint_state().items())
    with pytest.raises(ElmoFastError, match="vocabulary must have the 7 words that the model was trained with; got 3"):
        model.save_pretrained(tmp_path / "other", Vocabulary(words.words[:3]))
    assert not (tmp_path / "other").exists()
