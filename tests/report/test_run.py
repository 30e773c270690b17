"""A whole report of a toy language: runs, page, neighbours; what is there already is not run again."""

import json
import pathlib
import random

import pytest

from elmo_fast import ElmoEmbedder
from elmo_fast.cli.main import main
from elmo_fast.errors import ElmoFastError
from elmo_fast.report.neighbours import nearest_elsewhere
from elmo_fast.report.plan import SPLITS, ReportSettings
from elmo_fast.report.run import write_report
from elmo_fast.tasks import read_examples
from elmo_fast.tokens import TextTokens
from tests.support.fake_hub import FakeHub
from tests.support.weights import make_weights

NOUNS, VERBS = ("dog", "play", "cat", "work"), ("sees", "play", "eats", "work")


def toy_text(path, sentences, seed):
    """Article, noun, verb, article, noun: "play" and "work" are nouns after "the" and verbs after a noun."""
    chosen = random.Random(seed)
    lines = []
    for _ in range(sentences):
        words = ["the", chosen.choice(NOUNS), chosen.choice(VERBS), "the", chosen.choice(NOUNS)]
        tags = ["DET", "NOUN", "VERB", "DET", "NOUN"]
        lines += [f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)] + [""]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Splits of the toy language and a random biLM of two layers."""
    path = tmp_path_factory.mktemp("report")
    for number, (name, sentences) in enumerate({"train": 60, "dev": 12, "test": 12}.items()):
        toy_text(path / f"{name}.conll", sentences, number)
    (path / "model").mkdir()
    make_weights(path / "model", cell=8, proj=4, filters=((1, 4), (2, 4)), char_dim=4, n_highway=1, scale=0.5)
    return path


def settings(folder, **changes):
    values = {f"{name}_path": str(folder / f"{name}.conll") for name in ("train", "dev", "test")}
    small = {"seeds": 2, "shares": (0.5, 1.0), "hidden": 8, "epochs": 2, "patience": 1, "learning_rate": 0.01}
    return ReportSettings(
        **{"model": str(folder / "model"), "save_dir": str(folder / "out"), **values, **small, **changes}
    )


@pytest.fixture(scope="module")
def written(folder):
    """A report of every experiment, and the lines it said."""
    lines = []
    return write_report(settings(folder), report=lines.append), lines


def test_the_page_has_every_table_and_picture(written):
    text = written[0].read_text(encoding="utf-8")
    for heading in ("What agrees with the paper", "Does it help?", "All layers or the last", "Where to put it"):
        assert f"## {heading}" in text
    for heading in ("What each layer knows", "How much data it saves", "Neighbours of ambiguous words"):
        assert f"## {heading}" in text
    for name in ("share.png", "layers.png", "weights.png"):
        assert (written[0].parent / name).is_file()
    assert [line.split("  ")[0] for line in written[1]][:2] == ["runs", "cache"]
    assert "train longer (--epochs)" in written[1][-1]


def test_the_numbers_of_the_page_are_those_of_the_runs(written):
    """The table's mean is the mean of the results.json of the runs of that cell."""
    numbers = json.loads((written[0].parent / "report.json").read_text())
    cell = next(each for each in numbers if each["experiment"] == "help" and each["label"] == "+ ELMo")
    results = [json.loads(path.read_text()) for path in written[0].parent.glob("runs/*/results.json")]
    actual = [
        r["test"]["f1"]
        for r in sorted(results, key=lambda r: r["config"]["seed"])
        if (r["config"]["elmo"], r["config"]["layer"], r["config"]["mix_l2"]) == ("input", "mix", 0.001)
        and (r["config"]["lstm_layers"], r["config"]["train_share"]) == (1, 1.0)
    ]
    assert cell["test"] == actual
    assert f"{100 * sum(actual) / len(actual):.2f} ± " in written[0].read_text(encoding="utf-8")


def test_equal_settings_of_different_tables_are_run_once(written):
    """13 of the 18 cells differ: baseline and + ELMo stand in four tables, and at share 1 too."""
    numbers = json.loads((written[0].parent / "report.json").read_text())
    assert len(numbers) == 18
    assert len(list(written[0].parent.glob("runs/*/results.json"))) == 2 * 13


class EnoughError(Exception):
    """Stops a report."""


def runs_missing(settings):
    """Return the first line of a report, which says how many of its runs are there already; nothing is run."""

    def stop(line):
        raise EnoughError(line)

    with pytest.raises(EnoughError) as stopped:
        write_report(settings, report=stop)
    return " ".join(str(stopped.value).split()[:6])


def test_only_what_has_changed_is_run_again(written, folder, tmp_path):
    """A complete report runs nothing; the same name with other content is another run."""
    assert runs_missing(settings(folder)) == "runs 26, of which 26 are"
    before = written[0].read_text(encoding="utf-8")
    assert write_report(settings(folder), report=lambda line: None).read_text(encoding="utf-8") == before
    changed = pathlib.Path(toy_text(tmp_path / "train.conll", 30, 9))
    assert runs_missing(settings(folder, train_path=str(changed), experiments=("help",))) == "runs 4, of which 0 are"


def test_the_settings_beside_the_page_run_it_again_from_any_folder(written, folder, tmp_path, monkeypatch):
    """With relative paths and a model's name the same runs are recognized, and none is repeated."""
    monkeypatch.chdir(folder)
    relative = {f"{split}_path": f"{split}.conll" for split in ("train", "dev", "test")}
    assert runs_missing(settings(folder, model="model", save_dir="out", **relative)) == "runs 26, of which 26 are"
    page = write_report(settings(folder, model="model", save_dir="out", **relative), report=lambda line: None)
    monkeypatch.chdir(tmp_path)
    runs = {path: path.stat().st_mtime_ns for path in folder.glob("out/runs/*/results.json")}
    assert main(["report", "--config", str(folder / "out" / "report.yaml"), "--device", "cpu", "-q"]) == 0
    assert (folder / page).read_text() == written[0].read_text()
    assert runs == {path: path.stat().st_mtime_ns for path in folder.glob("out/runs/*/results.json")}


def test_a_model_of_the_hub_is_run_from_its_fetched_folder(folder, tmp_path, monkeypatch):
    """A name is no path: every run with ELMo gets the folder that the name stands for."""
    hub = FakeHub(tmp_path / "cache").install(monkeypatch)
    hub.repos["user/name"] = {path.name: path.read_bytes() for path in (folder / "model").iterdir()}
    changes = {"save_dir": str(tmp_path), "experiments": ("help",), "seeds": 1, "epochs": 1}
    page = write_report(settings(folder, model="user/name", **changes), report=lambda line: None)
    results = [json.loads(path.read_text()) for path in page.parent.glob("runs/*/results.json")]
    assert {result["config"]["model"] for result in results} == {None, str(tmp_path / "cache" / "user/name" / "main")}


def test_processes_give_the_numbers_of_one(written, folder):
    """A run in another process, on one thread."""
    changes = {"save_dir": str(folder / "two"), "processes": 2, "experiments": ("help",), "seeds": 1}
    other = write_report(settings(folder, **changes), print)
    actual = json.loads((other.parent / "report.json").read_text())
    expected = json.loads((written[0].parent / "report.json").read_text())[: len(actual)]
    assert [cell["test"] for cell in actual] == [cell["test"][:1] for cell in expected]


def test_what_cannot_be_asked_is_told_before_a_run_and_leaves_no_folder(folder, tmp_path):
    """A word that is not there, and a model that is none."""
    where = str(tmp_path / "out")
    with pytest.raises(ElmoFastError, match="--words: 'tree' does not occur in the first 4000 sentences"):
        write_report(settings(folder, words=("play", "Tree"), save_dir=where), report=print)
    with pytest.raises(ElmoFastError, match="found none"):
        write_report(settings(folder, model=str(tmp_path / "absent"), save_dir=where), report=print)
    assert not (tmp_path / "out").exists()


def test_neighbours_of_classified_sentences_are_said_to_be_left_out(folder, tmp_path):
    (tmp_path / "films.tsv").write_text("good\ta fine film\nbad\ta dull film\n")
    films = dict.fromkeys(SPLITS.values(), str(tmp_path / "films.tsv"))
    changes = {"task": "classify", "experiments": ("neighbours",), "save_dir": str(tmp_path), **films}
    lines = []
    assert "Neighbours" not in write_report(settings(folder, **changes), report=lines.append).read_text()
    assert "neighbours are skipped: sentences with one label have no tagged words" in lines


def rows_of_neighbours(page):
    """The cells of each row of the neighbours' table."""
    rows = page.split("| word | asked | nearest |\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.split(" | ")] for row in rows]


def test_the_table_of_neighbours_names_each_word_once(written, folder, tmp_path):
    """The word stands in the first of its rows, whatever that row is about."""
    rows = rows_of_neighbours(written[0].read_text(encoding="utf-8"))
    assert sorted(row[0].lstrip("| ") for row in rows) == ["", "", "play", "work"]
    assert all(row[1].startswith("biLM: ") for row in rows)
    (tmp_path / "v.txt").write_text("4 2\nplay 1 0\nwork 1 1\nthe 0 1\ndog 1 2\n")
    changes = {"vectors": str(tmp_path / "v.txt"), "experiments": ("neighbours",), "save_dir": str(tmp_path)}
    rows = rows_of_neighbours(write_report(settings(folder, **changes), report=lambda line: None).read_text())
    assert sorted(row[0].lstrip("| ") for row in rows) == ["", "", "", "", "play", "work"]
    assert {row[1] for row in rows if row[0].lstrip("| ")} == {"static vectors"}
    (tmp_path / "v.txt").write_text("1 2\nelsewhere 1 0\n")
    page = write_report(settings(folder, **changes), report=lambda line: None).read_text()
    assert "| static vectors | not among them |" in page


def test_the_nearest_tokens_of_other_sentences_equal_a_plain_search(folder):
    sentences = [example.words for example in read_examples(str(folder / "train.conll"))[:20]]
    text = TextTokens(ElmoEmbedder.from_pretrained(str(folder / "model"), stateful=False), sentences)
    unit = text.vectors / (text.vectors**2).sum(1, keepdims=True) ** 0.5
    cosines = unit @ unit[7]
    asked = text.where(7)
    others = [i for i in range(len(cosines)) if text.where(i)[0] != asked[0]]
    (near,) = nearest_elsewhere(text, [asked], 3)
    actual = [cosines[text.starts[sentence] + place] for sentence, place in near]
    assert actual == pytest.approx(sorted(cosines[others])[:-4:-1], abs=1e-5)


def test_a_report_compares_classifiers_of_pairs(folder, tmp_path):
    """Both texts count as words."""
    rows = "".join(f"play the dog,the {word},{word}\n" for word in ("cat", "dog", "cat", "dog"))
    (tmp_path / "pairs.csv").write_text(f"text,other,label\n{rows}")
    pairs = dict.fromkeys(SPLITS.values(), str(tmp_path / "pairs.csv"))
    changes = {"task": "classify", "pair_column": "other", "experiments": ("help",), "seeds": 1, "epochs": 1, **pairs}
    page = write_report(settings(folder, save_dir=str(tmp_path), **changes), report=lambda line: None)
    assert "Data: train 4 sentences, 20 words; dev" in page.read_text()
    configs = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/task.json")]
    assert [each["pair_column"] for each in configs] == ["other", "other"]
