"""Whole runs on a toy language: what they learn, what they leave behind, and what they refuse."""

import dataclasses
import json
import pathlib

import pytest

from elmo_fast.embed.token_files import read_cache_folder
from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import TaskConfig, load_bilm
from elmo_fast.tasks.run import evaluate_task, predict_task, train_task
from tests.tasks.toy import silent, toy_config, weights_of


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"elmo": "both", "crf": True, "spans": True, "characters": True},
        {"elmo": "output", "layer": "top"},
        {"elmo": "input", "word_dim": 0, "layer": 0, "lstm_layers": 0, "learning_rate": 0.3, "epochs": 20},
        {"elmo": "input", "fine_tune": True, "elmo_learning_rate": 0.003, "epochs": 6},
        {"classify": True},
        {"classify": True, "elmo": "both", "pooling": "max"},
    ],
)
def test_a_task_is_learned_saved_and_read_back(tmp_path, changes):
    """Test scores well above chance; the saved model gives the same scores and predictions of its own."""
    config = toy_config(tmp_path, **changes)
    result = train_task(config, silent)
    assert result.test.f1 > 0.8
    assert result.dev.f1 == max(row["score"] for row in result.epochs)
    again = evaluate_task(config.save_dir, config.test_path)
    assert again == result.test
    out = tmp_path / ("out.tsv" if config.task == "classify" else "out.conll")
    assert predict_task(config.save_dir, config.test_path, out) == 40
    assert evaluate_task(config.save_dir, out).accuracy == 1.0
    assert set(result.mix_weights) == {"none": set(), "both": {"input", "output"}}.get(config.elmo, {config.elmo})
    if config.layer == "mix":
        for weights in result.mix_weights.values():
            assert len(weights) == 3
            assert sum(weights) == pytest.approx(1)


def test_a_classifier_with_sentences_before_labels_predicts_from_sentences(tmp_path):
    """With column 1 the words are in the first column, for predictions too; another format has no such column."""
    config = toy_config(tmp_path, classify=True, column=1, epochs=1)
    for path in (config.train_path, config.dev_path, config.test_path):
        lines = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
        pathlib.Path(path).write_text("".join(f"{words}\t{label}\n" for label, words in lines))
    train_task(config, silent)
    predict_task(config.save_dir, config.test_path, tmp_path / "out.tsv")
    expected = [line.split("\t")[0] for line in pathlib.Path(config.test_path).read_text().splitlines()]
    assert [line.split("\t")[1] for line in (tmp_path / "out.tsv").read_text().splitlines()] == expected
    (tmp_path / "plain.txt").write_text("".join(f"{line}\n" for line in expected))
    assert predict_task(config.save_dir, tmp_path / "plain.txt", tmp_path / "plain.tsv", format="text") == len(expected)
    assert (tmp_path / "plain.tsv").read_text() == (tmp_path / "out.tsv").read_text()


@pytest.mark.filterwarnings("ignore:.*so a constant scores 100 %")
def test_predictions_of_a_conllu_file_are_one_that_eval_reads(tmp_path):
    """Whatever else is in it, and from the standard input too; other names are columns, and other inputs no CoNLL-U."""
    rows = [("1-2", "a b", "_"), ("1", "a", "X"), ("2", "b", "Y"), ("2.1", "e", "_"), ("3", "c", "X")]
    lines = ["# a comment\n", *(f"{i}\t{w}\t_\t{t}" + 6 * "\t_" + "\n" for i, w, t in rows), "\n"]
    (tmp_path / "a.conllu").write_text("".join(lines))
    paths = {f"{split}_path": str(tmp_path / "a.conllu") for split in ("train", "dev")}
    config = TaskConfig(**paths, save_dir=str(tmp_path / "run"), epochs=1, word_dim=2, hidden=2)
    train_task(config, silent)
    out = tmp_path / "out.conllu"
    assert predict_task(config.save_dir, config.train_path, out) == 1
    assert evaluate_task(config.save_dir, out).accuracy == 1
    assert [line.split("\t")[0] for line in out.read_text().splitlines()] == ["# a comment", *(r[0] for r in rows), ""]
    predict_task(config.save_dir, config.train_path, tmp_path / "labelled")
    assert (tmp_path / "labelled").read_bytes() == out.read_bytes()
    predict_task(config.save_dir, config.train_path, tmp_path / "out.conll")
    assert {line.count("\t") for line in (tmp_path / "out.conll").read_text().splitlines() if line} == {1}
    with pytest.raises(ElmoFastError, match=r"text\.conllu: labels of columns input cannot be written as conllu; give"):
        predict_task(config.save_dir, tmp_path / "out.conll", tmp_path / "text.conllu", format="columns")


def test_the_results_file_tells_all(tmp_path):
    config = toy_config(tmp_path, elmo="both", epochs=2)
    result = train_task(config, silent)
    content = json.loads((tmp_path / "run" / "results.json").read_text())
    assert content == json.loads(json.dumps(result.as_dict()))
    assert content["test"]["per_class"]["NAME"]["support"] > 0
    assert [row["epoch"] for row in content["epochs"]] == [1, 2]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == content["epochs"]


def test_a_fine_tuned_bilm_has_a_learning_rate_of_its_own(tmp_path):
    """With a step size next to nothing the biLM stays while the tagger learns; with a larger one it moves."""
    moved = {}
    for rate in (1e-30, 0.01):
        config = toy_config(tmp_path, elmo="input", fine_tune=True, elmo_learning_rate=rate, epochs=1,
                            save_dir=str(tmp_path / f"{rate}"))  # fmt: skip
        train_task(config, silent)
        before, after = dict(load_bilm(config.model).named_parameters()), weights_of(config)
        prefix = "elmo.trained_bilm."
        assert {name.removeprefix(prefix) for name in after if name.startswith(prefix)} == set(before)
        moved[rate] = max(float((after[prefix + name] - each).abs().max()) for name, each in before.items())
    assert moved[1e-30] == 0
    assert moved[0.01] > 0.01


def test_a_large_lambda_holds_the_mix_at_the_average(tmp_path):
    """λ = 100 leaves the weights of the layers a third each; λ = 0 lets them go."""
    spread = {}
    for mix_l2 in (0.0, 100.0):
        config = toy_config(tmp_path, elmo="input", word_dim=0, mix_l2=mix_l2, save_dir=str(tmp_path / str(mix_l2)))
        weights = train_task(config, silent).mix_weights["input"]
        spread[mix_l2] = max(weights) - min(weights)
    assert spread[100.0] < 0.02
    assert spread[0.0] > 5 * spread[100.0]


def test_patience_ends_training_and_the_best_epoch_is_kept(tmp_path):
    """With a learning rate that teaches nothing, the first epoch stays the best, and training ends `patience` later."""
    config = toy_config(tmp_path, learning_rate=1e-12, epochs=30, patience=2)
    result = train_task(config, silent)
    assert len(result.epochs) == result.best_epoch + 2
    assert result.dev.f1 == result.epochs[result.best_epoch - 1]["score"]


def cached_words(folder):
    """The number of words in each folder of a cache, in increasing order."""
    return sorted(len(read_cache_folder(path).embeddings) for path in folder.iterdir())


def test_a_share_of_the_training_sentences(tmp_path):
    result = train_task(toy_config(tmp_path, train_share=0.1, epochs=1, elmo="input"), silent)
    assert result.sentences == 12
    few, cache, results = cached_words(tmp_path / "run" / "cache"), str(tmp_path / "run" / "cache"), {}
    assert few[0] == result.words, "only the sentences that are used are embedded"
    for name, share in (("all", 1.0), ("more", 0.5), ("again", 0.1)):
        changes = {"train_share": share, "save_dir": str(tmp_path / name), "cache_dir": cache, "resume": False}
        results[name] = train_task(toy_config(tmp_path, epochs=1, elmo="input", **changes), silent)
    assert len(cached_words(tmp_path / "run" / "cache")) == len(few) + 1, "a share finds the layers of all sentences"
    assert results["again"].dev == result.dev


def test_a_model_that_is_given_and_not_used_is_said(tmp_path):
    """A forgotten --elmo trains the baseline, and a warning says so; with it there is none."""
    config = toy_config(tmp_path, elmo="input", epochs=1)
    with pytest.warns(UserWarning, match=r"--model .* is not used, because --elmo is none: give --elmo input"):
        train_task(dataclasses.replace(config, elmo="none"), print)
    train_task(dataclasses.replace(config, save_dir=str(tmp_path / "other")), print)


def test_unseen_tags_are_said_and_counted_wrong(tmp_path):
    config = toy_config(tmp_path, epochs=1)
    (tmp_path / "odd.conll").write_text("Ann\tSTRANGE\n\n")
    with pytest.warns(UserWarning, match=r"test: 1 of 1 labels do not occur in the training data: STRANGE \(1\)"):
        result = train_task(dataclasses.replace(config, test_path=str(tmp_path / "odd.conll")), silent)
    assert result.notes
    assert result.test.accuracy == 0


@pytest.mark.filterwarnings("ignore:.* labels do not occur in the training data")
def test_an_odd_tag_is_named_and_the_metric_can_be_fixed(tmp_path):
    """In training and in evaluation the F1 of spans stays; --metric labels is the accuracy, without a warning."""
    config = toy_config(tmp_path, spans=True, epochs=1)
    for split in ("dev", "test"):
        path = tmp_path / f"{split}.bio"
        path.write_text(path.read_text().replace("\tO\n", "\to\n", 1))
    said = r"/{}\.bio, sentence \d+ \(1 of \d+ labels\): 'o' is not a span tag .*: they count as O .*--metric labels"
    with pytest.warns(UserWarning, match=said.format("dev")), pytest.warns(UserWarning, match=said.format("test")):
        result = train_task(config, silent)
    assert result.dev.spans
    assert any("'o' is not a span tag" in note for note in result.notes)
    with pytest.warns(UserWarning, match=said.format("test")):
        assert evaluate_task(config.save_dir, config.test_path) == result.test
    labels = evaluate_task(config.save_dir, config.test_path, metric="labels")
    assert not labels.spans
    by_labels = dataclasses.replace(config, metric="labels", save_dir=str(tmp_path / "labels"))
    assert not train_task(by_labels, silent).dev.spans
    assert not evaluate_task(by_labels.save_dir, config.test_path).spans


def test_an_epoch_that_was_saved_and_not_noted_is_noted_on_resuming(tmp_path):
    """A process that is killed between the two would lack its line for ever."""
    config = toy_config(tmp_path, epochs=2)
    train_task(config, silent)
    metrics = pathlib.Path(config.save_dir, "metrics.jsonl")
    lines = metrics.read_text().splitlines()
    metrics.write_text(lines[0] + "\n")
    train_task(config, silent)
    assert metrics.read_text().splitlines() == lines


def test_a_label_per_row_is_noticed(tmp_path):
    """In any table: a score or an id was named, not a class."""
    table = tmp_path / "scores.csv"
    table.write_text("text,label\n" + "".join(f"film {i},0.{i:04}\n" for i in range(40)))
    paths = {f"{split}_path": str(table) for split in ("train", "dev")}
    config = TaskConfig(**paths, task="classify", save_dir=str(tmp_path / "run"), epochs=1, word_dim=2, hidden=2)
    with pytest.warns(UserWarning, match=r"scores.csv: 40 different labels for 40 sentences.* --label_column"):
        train_task(config, silent)


@pytest.mark.parametrize(
    ("xpos", "message"),
    [
        ("__", r"column xpos is empty \(_\) in every line"),
        ("N_", r"train\.conllu, sentence 1 \(1 of 2 labels\): the label is unspecified \(_\)"),
        ("NN", r"all 2 labels are 'N', so a constant scores 100 %; is --column another\?"),
    ],
)
def test_labels_that_are_none_or_all_the_same_are_noticed(tmp_path, xpos, message):
    lines = (f"{i}\tw\t_\tX\t{tag}" + 5 * "\t_" + "\n" for i, tag in enumerate(xpos, 1))
    (tmp_path / "train.conllu").write_text("".join(lines))
    paths = {f"{split}_path": str(tmp_path / "train.conllu") for split in ("train", "dev")}
    config = TaskConfig(**paths, column="xpos", save_dir=str(tmp_path / "run"), epochs=1, word_dim=2, hidden=2)
    if xpos == "__":
        with pytest.raises(ElmoFastError, match=message):
            train_task(config, silent)
    else:
        with pytest.warns(UserWarning, match=message):
            train_task(config, silent)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_path": "bad.conll"}, r"bad\.conll, line 2"),
        ({"task": "classify"}, "--task classify needs a label per sentence, and the format columns has one per word"),
        (
            {"learning_rate": 1e30, "patience": 0},
            r"epoch \d+: the gradient is not finite .* give a smaller learning_rate",
        ),
    ],
)
def test_what_cannot_be_trained_is_named_and_leaves_no_results(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.conll").write_text("Ann NAME\nBob\n")
    with pytest.raises(ElmoFastError, match=message):
        train_task(toy_config(tmp_path, **changes), silent)
    assert not (tmp_path / "run" / "results.json").exists()
