"""Pairs of texts: a table of two columns, [u; v; |u - v|; u * v], and what is trained, saved, scored and predicted."""

import csv
import io
import itertools
import json

import pytest
import torch

from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.tasks import Classifier, Example, evaluate_task, load_task, predict_task, read_examples, train_task
from elmo_fast.tasks.formats import texts_of
from tests.tasks.toy import silent, toy_config

WHO, WHAT = ("Ann", "the dog", "a small child"), ("sleeps", "is tall")


def write_pairs(path):
    """Two sentences of different lengths each: the label says whether they are about the same one."""
    sentences = [f"{who} {what}" for who, what in itertools.product(WHO, WHAT)]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["premise", "hypothesis", "label"])
        for one, other in itertools.product(sentences, sentences):
            rows.writerow([one, other, "same" if one[:3] == other[:3] else "other"])
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A classifier of pairs with ELMo at both places, and its result."""
    folder = tmp_path_factory.mktemp("pairs")
    table = dict.fromkeys(("train_path", "dev_path", "test_path"), write_pairs(folder / "pairs.csv"))
    changes = {"column": "premise", "pair_column": "hypothesis", "epochs": 2, "train_share": 0.5, "batch_size": 5}
    config = toy_config(folder, classify=True, elmo="both", **table, **changes)
    return config, train_task(config, report=silent)


def test_the_scores_of_a_pair_are_those_of_the_formula():
    """For a batch of pairs, whatever the lengths, those of each pair of pooled vectors by hand."""
    torch.manual_seed(0)
    head = Classifier(4, 3, pairs=True, hidden=5, lstm_layers=1).eval()
    features, lengths = torch.randn(4, 6, 4), torch.tensor([6, 2, 1, 4])
    pooled = []
    for row, length in zip(features, lengths.tolist(), strict=True):
        x = head.lstm(row[None, :length], torch.tensor([length]))[0]
        pooled.append(torch.cat([x.amax(0), x.mean(0)]))
    by_hand = [torch.cat([u, v, abs(u - v), u * v]) for u, v in (pooled[:2], pooled[2:])]
    torch.testing.assert_close(head(features, lengths), head.linear(torch.stack(by_hand)))


def test_eval_and_predict_repeat_the_scores_of_training(trained, tmp_path):
    """Training reads a cache of half the pairs and of all, `eval` runs the biLM: each text has its own vectors."""
    config, result = trained
    assert result.sentences == 18
    assert evaluate_task(config.save_dir, config.test_path) == result.test
    task = load_task(config.save_dir)
    examples = read_examples(config.test_path, column="premise", pair_column="hypothesis")
    labels = task.predict([(each.words, " ".join(each.second)) for each in examples])
    assert sum(a == b for a, b in zip(labels, (e.labels[0] for e in examples), strict=True)) == round(
        36 * result.test.f1
    )
    assert predict_task(config.save_dir, config.test_path, tmp_path / "out.csv") == 36
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["predicted"] for row in rows] == labels
    assert (rows[1]["premise"], rows[1]["hypothesis"]) == ("Ann sleeps", "Ann is tall")


@pytest.mark.filterwarnings("ignore:.*are blank", "ignore:.*have no words")
def test_a_pair_without_a_second_text_has_no_label(trained, tmp_path):
    (tmp_path / "in.csv").write_text("premise,b\nAnn sleeps,\nAnn sleeps,Ann is tall\n")
    predict_task(trained[0].save_dir, tmp_path / "in.csv", tmp_path / "out.jsonl", pair_column="b")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["label"], first["second"], second["second"]) == (None, [], ["Ann", "is", "tall"])
    assert sum(second["probabilities"].values()) == pytest.approx(1)
    assert load_task(trained[0].save_dir).predict([("Ann", "")]) == [None]


def test_what_is_no_pair_is_refused(trained, tmp_path):
    folder = trained[0].save_dir
    with pytest.raises(ElmoFastError, match=r"sentences\[1\] must be two texts, as the task was trained on pairs; got"):
        load_task(folder).predict([("a", "b"), "ab"])
    (tmp_path / "in.csv").write_text("premise,hypothesi,label\na,b,x\na,,x\n")
    with pytest.raises(ElmoFastError, match=r"has no column 'hypothesis'; it has: .*did you mean hypothesi"):
        evaluate_task(folder, tmp_path / "in.csv")
    with pytest.raises(ElmoFastError, match="row 2: the second text is empty; fill it, or remove the row"):
        evaluate_task(folder, tmp_path / "in.csv", pair_column="hypothesi")
    with pytest.raises(ElmoFastError, match=r"labels of pairs of csv .* as tsv; give a name in .jsonl or .csv"):
        predict_task(folder, trained[0].test_path, tmp_path / "out.tsv")
    (tmp_path / "in.conll").write_text("a\tX\n")
    with pytest.raises(ElmoFastError, match="wanted a table, csv, jsonl, parquet or tsv; the format is columns"):
        read_examples(tmp_path / "in.conll", pair_column="b")
    with pytest.raises(ElmoFastError, match="column and pair_column must be two columns of texts; got 'b' for both"):
        read_examples(tmp_path / "in.csv", column="b", pair_column="b")
    with pytest.raises(ElmoFastError, match="--pair_column does nothing with --task tag: give --task classify"):
        train_task(toy_config(tmp_path, pair_column="b"), silent)


def test_a_task_of_single_texts_takes_no_pair_column(trained, tmp_path):
    """And none of its results is left out or moved in silence."""
    table = dict.fromkeys(("train_path", "dev_path", "test_path"), trained[0].test_path)
    config = toy_config(tmp_path, classify=True, elmo="none", column="premise", epochs=1, **table)
    train_task(config, report=silent)
    for use in (evaluate_task, lambda *of, **how: predict_task(*of, tmp_path / "out.csv", **how)):
        with pytest.raises(ElmoFastError, match="pair_column is for a task trained on pairs, not this one; got 'hyp"):
            use(config.save_dir, trained[0].test_path, pair_column="hypothesis")
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(
        ElmoFastError, match=r"sentences\[1\] must be one text, as the task was not trained on pairs; got"
    ):
        load_task(config.save_dir).predict(["Ann sleeps", ("Ann sleeps", "Ann is tall")])


def test_pairs_from_the_standard_input_are_named_so(trained, monkeypatch, capsys):
    for text, options, message in (
        ("a b\n", ["--format", "text"], "-: wanted a table, csv, jsonl, parquet or tsv; the format is text"),
        ("premise,x\na,b\n", ["--format", "csv"], "standard input, row 1 has no column 'hypothesis'"),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["task", "predict", trained[0].save_dir, "-", "-", *options]) == 2
        assert message in capsys.readouterr().err


def test_pairs_may_come_from_an_iterator(trained):
    assert len(load_task(trained[0].save_dir).predict(zip(["Ann", "the dog"], ["Ann", "is tall"], strict=True))) == 2


def test_single_sentences_have_one_text_each():
    """Also one without words, which a cache gives its place."""
    assert texts_of([Example(["a"], []), Example([], [])]) == [["a"], []]
    assert texts_of([Example(["a"], [], ["b"]), Example(["c"], [], ["d"])]) == [["a"], ["b"], ["c"], ["d"]]
