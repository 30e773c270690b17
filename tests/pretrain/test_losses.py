"""Runs with each loss: the step's formula, exact perplexities, checkpoints, resume; what each says of itself."""

import math

import pytest
import torch
from safetensors.torch import load_file

from elmo_fast import ops
from elmo_fast.checkpoints import LOSSES, load_folder
from elmo_fast.cli.main import main
from elmo_fast.corpus import encode
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.dry_run import dry_run
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import SENTENCES, quiet, rows, toy_batches, toy_config, toy_corpus, toy_reader, toy_step

OTHERS = [loss for loss in LOSSES if loss != "sampled_softmax"]
SEED = 11


def setting(loss, dtype=torch.float64, **changes):
    """A model of the toy text and the first epoch's words."""
    corpus, config = toy_corpus(), toy_config(**{"dropout": 0.0, "loss": loss} | changes)
    model = make_language_model(config, len(corpus.vocabulary), counts=target_counts(corpus)).to(dtype)
    torch.nn.init.normal_(model.softmax_bias)
    return model, toy_batches(config, corpus), corpus


def trained(folder, loss, **changes):
    """A finished run of the toy text."""
    return pretrain(toy_config(folder, loss=loss, **changes), report=quiet)


@pytest.fixture
def gradients(monkeypatch):
    """{a parameter: its gradient}: the input of the last update, since a step leaves none."""
    given, zero_grad = {}, torch.optim.Optimizer.zero_grad

    def noting(optimizer, **how):
        for group in optimizer.param_groups:
            given.update({each: each.grad.clone() for each in group["params"] if each.grad is not None})
        zero_grad(optimizer, **how)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", noting)
    return given


def test_counts_are_of_what_both_directions_predict():
    """Words outside the vocabulary are <UNK>, a sentence's end </S> or <S>; a word that never occurs counts as one."""
    corpus = toy_corpus()
    words = [word for sentence in SENTENCES for word in sentence.split()]
    known = corpus.vocabulary.words[3:]
    expected = {word: words.count(word) for word in known} | {"<S>": 5, "</S>": 5}
    expected["<UNK>"] = sum(word not in known for word in words)
    assert dict(zip(corpus.vocabulary.words, target_counts(corpus).tolist(), strict=True)) == expected


def defined_losses(model, hidden, targets, draw, samples, negatives):
    """Each position's loss by the op's definition, which tests/ops hold to the formula."""
    table, counts = (hidden, targets, model.softmax_weight, model.softmax_bias), model.counts
    if model.loss.kind.name == "full_softmax":
        return ops.full_softmax(*table, backend="reference")
    if model.loss.kind.name == "negative_sampling":
        samples = ops.alias_sample(samples, ops.alias_table(counts.cpu(), power=0.75), seed=SEED, offset=draw)
        return ops.negative_sampling(*table, samples, negatives=negatives, backend="reference")
    return ops.hierarchical_softmax(*table, ops.huffman_tree(counts.long()), backend="reference")


@pytest.mark.parametrize(
    ("loss", "samples", "negatives"),
    [*((loss, 6, None) for loss in OTHERS), ("negative_sampling", 6, 2.5), ("negative_sampling", 50, 5.0)],
)
def test_a_step_is_the_formula_and_so_is_its_gradient(gradients, loss, samples, negatives):
    """Mean losses of both directions; gradient of ½ Σ loss / R, in float64, as rows where few rows are used.

    Noise may be more words than there are, and counts as told.
    """
    model, batches, _ = setting(loss, n_negative_samples_batch=samples, negatives=negatives)
    twin, *_ = setting(loss)
    twin.load_state_dict(model.state_dict())
    result = toy_step(model, seed=SEED)(batches[0], None, 4)
    hidden, _ = twin(batches[0].types, toy_reader(twin), None)
    losses = [
        defined_losses(twin, rows, targets.flatten(), 2 * 4 + way, samples, negatives)
        for way, (rows, targets) in enumerate(zip(hidden.flatten(1, 2), batches[0].targets, strict=True))
    ]
    assert [result.forward, result.backward] == pytest.approx([each.mean().item() for each in losses], rel=1e-10)
    (0.5 / 3 * sum(each.sum() for each in losses)).backward()
    norm = torch.stack([p.grad.square().sum() for p in twin.parameters()]).sum().sqrt().item()
    assert result.gradient_norm == pytest.approx(norm, rel=1e-10)
    assert gradients[model.softmax_weight].is_sparse == (loss != "full_softmax")
    torch.testing.assert_close(gradients[model.softmax_weight].to_dense(), twin.softmax_weight.grad)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("loss", "read"),
    [*((loss, "characters") for loss in LOSSES), ("sampled_softmax", "words"), ("full_softmax", "words")],
)
def test_micro_batches_and_dense_tables_give_the_same_steps(gradients, loss, read):
    """With dropout; a table's gradient is of rows only where that is asked for and few rows are used."""
    results = []
    for more in ({}, {"micro_batches": 3}, {"sparse": False}):
        torch.manual_seed(3)
        model, batches, _ = setting(loss, dropout=0.4, input=read)
        step, state = toy_step(model, clip_norm=2.0, seed=0, **more), None
        for number, batch in enumerate(batches):
            result = step(batch, state, number)
            state = result.state
        assert gradients[model.softmax_weight].is_sparse == (more.get("sparse", True) and loss != "full_softmax")
        if read == "words":
            assert gradients[model.bilm._word_embedding.weight].is_sparse == more.get("sparse", True)
        results.append((*result, model.state_dict()))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_learns_is_saved_read_back_and_converted(tmp_path, loss):
    """Held-out perplexity falls below that of knowing nothing, and says what it is of."""
    text, counted = tmp_path / "text.txt", loss in ("negative_sampling", "hierarchical_softmax")
    text.write_text("\n".join(SENTENCES) + "\n")
    more = {"heldout_prefix": str(text), "dropout": 0.0, "n_negative_samples_batch": 19}
    run = trained(tmp_path, loss, max_steps=150, n_epochs=99, log_interval=50, **more)
    assert run.heldout.mean < 0.7 * len(run.vocabulary)
    assert LOSS_CLASSES[loss].explanation in str(run.heldout)
    assert bool(LOSS_CLASSES[loss].explanation) == (loss in OTHERS and loss != "full_softmax")
    records, name = rows(run.folder), {"sampled_softmax": "sampled_perplexity", "negative_sampling": None}
    assert {key for row in records for key in row if key.endswith("d_perplexity") or key == "training_perplexity"} == (
        {name.get(loss, "training_perplexity")} - {None}
    )
    assert load_folder(run.folder)[1].trained_by == loss
    folders = [str(run.folder), str(tmp_path / "hdf5"), str(tmp_path / "back")]
    assert main(["convert", "--model", folders[0], "--to", "hdf5", "--out_dir", folders[1]]) == 0
    assert main(["convert", "--model", folders[1], "--to", "safetensors", "--out_dir", folders[2]]) == 0
    corpus = encode([sentence.split() for sentence in SENTENCES], run.vocabulary)
    for folder in folders[1:]:
        assert evaluate(LanguageModel.from_pretrained(folder), corpus).mean == pytest.approx(run.heldout.mean, rel=1e-6)

    folder = next((run.folder / "checkpoints").glob("step-*"))
    weights, sums = load_file(folder / "model.safetensors"), load_file(folder / "optimiser.safetensors")
    assert {name for name in weights if "softmax" in name} == (
        {"softmax.weight", "softmax.bias"} | ({"softmax.counts"} if counted else set())
    )
    assert {"sum/softmax_weight", "sum/softmax_bias"} < set(sums)
    assert not any("loss" in name for name in [*weights, *sums])


def test_a_checkpoint_without_its_counts_is_refused(tmp_path):
    run = trained(tmp_path, "hierarchical_softmax")
    state, options = load_folder(run.folder)
    del state["softmax.counts"]
    with pytest.raises(ElmoFastError, match="counts must say how often each of the"):
        LanguageModel.from_checkpoint(options, state)
    from elmo_fast.checkpoints import save_folder

    with pytest.raises(CheckpointError, match=r"softmax\.counts: wanted shape"):
        save_folder(tmp_path / "without", state, options)


@pytest.mark.parametrize("loss", ["negative_sampling", "hierarchical_softmax"])
def test_init_from_keeps_what_can_be_kept(tmp_path, loss):
    """The same words: rows as they were. Another loss: a tree's rows belong to no word, and are sampled again."""
    first = trained(tmp_path, loss)
    vocabulary = str(first.folder / "vocab.txt")
    lines = []
    again = {"save_dir": str(tmp_path / "again"), "init_from": str(first.folder), "vocab_file": vocabulary}
    config = toy_config(tmp_path, loss=loss, max_steps=1, learning_rate=1e-9, **again)
    second = pretrain(config, report=lines.append)
    torch.testing.assert_close(second.model.softmax_weight, first.model.softmax_weight)
    assert any("are kept" in line or "keep their row" in line for line in lines)
    config = toy_config(
        tmp_path,
        loss="sampled_softmax",
        max_steps=1,
        learning_rate=1e-9,
        **again | {"save_dir": str(tmp_path / "other")},
    )
    third = pretrain(config, report=lines.append)
    assert third.model.softmax_weight.shape == (len(first.vocabulary), 8)
    kept = loss == "negative_sampling"
    assert (
        torch.allclose(third.model.softmax_weight[: len(first.model.softmax_weight)], first.model.softmax_weight)
        == kept
    )


@pytest.mark.parametrize(("negatives", "bias"), [(None, -math.log(6)), (3.0, -math.log(3))])
def test_a_new_table_of_negative_sampling_says_what_the_noise_does(negatives, bias):
    """Its bias is -ln K, K the words that the noise counts as; those of other losses are zero."""
    corpus = toy_corpus()
    for loss in LOSSES:
        more = {"negatives": negatives} if loss == "negative_sampling" else {}
        model = make_language_model(toy_config(loss=loss, **more), len(corpus.vocabulary), counts=target_counts(corpus))
        expected = bias if loss == "negative_sampling" else 0.0
        assert model.softmax_bias.detach().numpy() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("order", "loss", "refused"),
    [
        ("sorted", "sampled_softmax", False),
        ("another text's", "sampled_softmax", False),
        ("reversed", "sampled_softmax", True),
        ("alphabetical", "sampled_softmax", True),
        ("reversed", "negative_sampling", False),
    ],
)
def test_words_sampled_by_place_must_be_sorted_by_frequency(tmp_path, order, loss, refused):
    """Unsorted, it would learn something else, and say nothing: a run and a dry run refuse it before they begin."""
    words = [f"w{number}" for number in range(120)]
    lines = [" ".join(words[: 1 + 6000 // (place + 50)]) for place in range(120)]
    (tmp_path / "train-0.txt").write_text("\n".join(lines) + "\n")
    ordered = {
        "sorted": words, "another text's": [*words[1:60:2], *words[0:60:2], *words[60:]],
        "reversed": words[::-1], "alphabetical": sorted(words, key=lambda word: word[::-1]),
    }[order]  # fmt: skip
    (tmp_path / "vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *ordered]) + "\n")
    config = toy_config(
        train_prefix=str(tmp_path / "train-*"), save_dir=str(tmp_path / "out"), vocab_file=str(tmp_path / "vocab.txt"),
        loss=loss, n_negative_samples_batch=20, max_steps=1,
    )  # fmt: skip
    for run in (dry_run, pretrain):
        if refused:
            with pytest.raises(ElmoFastError, match=r"not sorted by frequency.*elmo-fast vocab writes it so"):
                run(config, report=quiet)
        else:
            run(config, report=quiet)
