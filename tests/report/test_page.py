"""The page from made-up scores: what its tables, verdicts and pictures say."""

import pytest

from elmo_fast.errors import ElmoFastError
from elmo_fast.report import page as report_page
from elmo_fast.report.page import claims, comparison, page, spread
from elmo_fast.report.plan import cells
from tests.report.made_up import scored, settings

LAYERS = 3


def as_the_paper(cell, seed):
    """Scores in the order that the paper found."""
    values = {
        "baseline": 0.80,
        "+ ELMo": 0.90,
        "last layer only": 0.85,
        "all layers, λ = 1": 0.87,
        "all layers, λ = 0.03": 0.88,
        "all layers, λ = 0.001": 0.90,
        "input only": 0.90,
        "input and output": 0.93,
        "output only": 0.86,
        "characters": 0.70,
        "LSTM 1": 0.88,
        "LSTM 2": 0.84,
        "all, mixed": 0.89,
        "baseline 0.1": 0.60,
        "baseline 1": 0.80,
        "+ ELMo 0.1": 0.81,
        "+ ELMo 1": 0.90,
    }
    return values[cell.label] + 0.001 * seed


def column(text, number):
    return [row.split("|")[number].strip() for row in text.splitlines()[2:]]


def test_a_spread_is_mean_and_deviation():
    assert [spread([0.90, 0.92, 0.94]), spread([0.9])] == ["92.00 ± 2.00", "90.00"]


@pytest.mark.parametrize(
    ("better", "worse", "verdict"),
    [
        ([0.90, 0.95], [0.8, 0.89], 1),
        ([0.90, 0.95], [0.8, 0.905], 0),
        ([0.90, 0.95], [0.97, 0.98], -1),
        ([0.9], [0.1, 0.2], 0),
        ([0.9, 0.8], [0.1], 0),
    ],
)
def test_better_means_that_no_seed_of_the_worse_reaches_the_better(better, worse, verdict):
    """One run proves nothing."""
    assert comparison(better, worse) == verdict


def test_scores_in_the_papers_order_follow_it(tmp_path):
    some = settings(tmp_path)
    assert set(column(claims(scored(some, LAYERS, as_the_paper)), 3)) == {"yes", "yes, by the means"}


def test_scores_in_the_reverse_order_do_not(tmp_path):
    """The verdicts can be no: each finding is turned round by turning the scores round."""
    some = settings(tmp_path)
    turned = scored(some, LAYERS, lambda cell, seed: 1 - as_the_paper(cell, seed))
    assert set(column(claims(turned), 3)) == {"no, the opposite", "no, by the means"}


def test_equal_scores_prove_nothing(tmp_path):
    some = settings(tmp_path)
    level = scored(some, LAYERS, lambda cell, seed: 0.5 + 0.01 * seed)
    assert set(column(claims(level), 3)) == {"within the spread of the seeds", "yes, by the means"}


def test_the_table_of_help_counts_points_and_errors(tmp_path):
    some = settings(tmp_path, column=("upos",))
    row = report_page.help_table(scored(some, LAYERS, as_the_paper)).splitlines()[-1]
    assert row == "| upos | 80.10 ± 0.10 | 90.10 ± 0.10 | +10.00 | 50.3% | yes |"


def test_the_best_of_a_column_is_bold(tmp_path):
    some = settings(tmp_path, column=("upos",), seeds=1)
    text = report_page.rows_by_target(scored(some, LAYERS, as_the_paper), "placement", "setting")
    assert text.splitlines()[2:] == [
        "| input only | 90.00 |",
        "| input and output | **93.00** |",
        "| output only | 86.00 |",
    ]
    equal = scored(
        some, LAYERS, lambda cell, seed: 0.86 if cell.changes["elmo"] == "output" else 0.9 + 1e-9 * len(cell.label)
    )
    text = report_page.rows_by_target(equal, "placement", "setting")
    assert [row.count("**90.00**") for row in text.splitlines()[2:]] == [1, 1, 0], "equal as printed"


def test_the_page_links_the_pictures_it_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    some = settings(tmp_path)
    text = page(scored(some, LAYERS, as_the_paper), some, ["A fact."], "Near.", tmp_path)
    for name in ("share.png", "layers.png", "weights.png", "epochs.png"):
        assert f"]({name})" in text
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path) not in text  # the page speaks of files by name, wherever they lay


def test_runs_that_were_still_improving_are_named(tmp_path):
    """In each verdict that rests on them: more epochs may turn it round."""
    some = settings(tmp_path, column=("upos",), seeds=2)
    done = scored(some, LAYERS, as_the_paper)
    assert report_page.unfinished(done) == ""
    for cell in done:
        if cell.label in ("+ ELMo", "+ ELMo 0.1"):
            cell.runs[0]["best_epoch"] = 3
    helps, *others, scarce, _ = column(claims(done), 3)
    assert helps == "yes; the best epoch was the last in 1 of 4 runs: train longer (--epochs)"
    assert scarce == "yes; the best epoch was the last in 1 of 4 runs: train longer (--epochs)"
    assert set(others) == {"yes"}


def test_columns_with_different_scores_are_named_with_theirs(tmp_path):
    """The first column's score is not every column's."""
    done = scored(settings(tmp_path), LAYERS, as_the_paper)
    assert report_page.metric(done) == "accuracy"
    for cell in (cell for cell in done if cell.target == "xpos"):
        for run in cell.runs:
            run["test"]["spans"] = True
    assert report_page.metric(done) == "accuracy (upos), F1 of spans (xpos)"


def test_only_what_was_asked_for_is_planned(tmp_path):
    some = settings(tmp_path, experiments=("help", "neighbours"), column=())
    assert [(cell.target, cell.label) for cell in cells(some, LAYERS)] == [("upos", "baseline"), ("upos", "+ ELMo")]


def test_a_table_has_its_labels_in_the_column_label(tmp_path):
    """One model, whatever the columns; --column would name the sentences."""
    assert settings(tmp_path, format="csv", column=()).targets == [None]
    with pytest.raises(ElmoFastError, match="--column chooses no labels of a table; got source: leave it out and call"):
        settings(tmp_path, format="csv", column=("source",)).targets  # noqa: B018


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": ""}, "--model is needed"),
        ({"train_path": "nowhere.conllu"}, "there is no file 'nowhere.conllu'"),
        ({"experiments": ("luck",)}, "must be among help, .*; got luck"),
        ({"seeds": 0}, "--seeds must be 1 or more; got 0"),
        ({"shares": (0.1, 2.0)}, "above 0 and at most 1; got 2.0"),
        ({"shares": ()}, "at least one share"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, changes, words):
    with pytest.raises(ElmoFastError, match=words):
        settings(tmp_path, **changes)


def test_updates_are_counted_until_the_baselines_best_development_score(tmp_path):
    """Of 100 sentences in batches of 32: four an epoch; a seed that never reaches it is said."""
    some = settings(tmp_path, column=("upos",), seeds=2)
    done = scored(some, LAYERS, as_the_paper)
    assert report_page.updates_table(done, 32).splitlines()[-1] == "| upos | 8 | 4 | 50.0% |"
    row = next(line for line in claims(done).splitlines() if "fewer updates" in line)
    assert row.endswith("| upos | yes | + ELMo epoch 1, 1; baseline epoch 2, 2 |")
    elmo = next(cell for cell in done if cell.label == "+ ELMo")
    for epoch in elmo.runs[1]["epochs"]:
        epoch["score"] = 0.1
    assert report_page.updates_table(done, 32).splitlines()[-1] == "| upos | 8 | not in every run | none |"
    row = next(line for line in claims(done).splitlines() if "fewer updates" in line)
    assert row.endswith("| within the spread of the seeds | + ELMo epoch 1, never; baseline epoch 2, 2 |")


def test_the_weights_of_each_penalty_are_shown(tmp_path):
    some = settings(tmp_path, column=("upos",), seeds=2)
    done = scored(some, LAYERS, as_the_paper)
    small = next(cell for cell in done if cell.label == "all layers, λ = 0.001")
    small.runs[0]["mix_weights"] = {"input": [0.1, 0.7, 0.2]}
    assert report_page.weights_table(done).splitlines() == [
        "| labels | λ | characters | LSTM 1 | LSTM 2 | largest less smallest |",
        "| :-- | :-- | :-- | :-- | :-- | :-- |",
        "| upos | 1 | 0.500 | 0.250 | 0.250 | 0.250 |",
        "| upos | 0.03 | 0.500 | 0.250 | 0.250 | 0.250 |",
        "| upos | 0.001 | 0.300 | 0.475 | 0.225 | 0.250 |",
    ]
