"""The benchmarks' own arithmetic and files: sides in turn, medians, ratios, and what comes back from the disk."""

import csv
import json
import sys

import pytest

from benchmarks import machine, results
from benchmarks.results import Report, faster, load, row, save, significant
from benchmarks.timing import in_turn, quantile
from benchmarks.workers import Worker


def test_sides_are_asked_in_turn_after_the_warm_up():
    """A B A B ..., warm-up rounds thrown away."""
    asked = []

    def side(name):
        def measure():
            asked.append(name)
            return float(len(asked))

        return measure

    taken = in_turn({"a": side("a"), "b": side("b")}, rounds=3, warmup=2)
    assert "".join(asked) == "ab" * 5
    assert taken == {"a": [5.0, 7.0, 9.0], "b": [6.0, 8.0, 10.0]}


def test_quantiles():
    values = [float(v) for v in range(101)]
    assert [quantile(values[::-1], share) for share in (0.2, 0.5, 0.8)] == [20.0, 50.0, 80.0]
    assert quantile([7.0], 0.5) == 7.0


@pytest.mark.parametrize(("unit", "ratio"), [("ms", 0.5), ("s", 0.5), ("tokens/s", 2.0), ("lines/s", 2.0)])
def test_ratio_says_how_many_times_faster(unit, ratio):
    """Of times the smaller is faster, of rates the larger."""
    ours, theirs = (row("v", side, [v], threads=1, unit=unit) for side, v in (("ours", 20.0), ("theirs", 10.0)))
    faster(ours, theirs, goal=3.0)
    assert (ours.against, ours.ratio, ours.goal) == ("theirs", ratio, 3.0)


def test_significant_digits():
    assert [significant(v) for v in (123456.0, 0.000123456, 0.0)] == [123500.0, 0.0001235, 0.0]


def test_a_report_comes_back_as_it_was_saved(tmp_path):
    """JSON and CSV hold the same rows, with machine, versions, date, commit and command."""
    mine = row("float32", "ours", [1.0, 2.0, 4.0], threads=1, unit="ms", error=1e-6, error_to="theirs")
    about = machine.describe("python -m benchmarks.run --case toy")
    save(tmp_path, "toy", Report([mine], {"text": "some"}, ["that: absent"]), about)
    content = load(tmp_path, "toy")
    assert content["rows"] == [mine]
    assert (content["notes"], content["skipped"]) == ({"text": "some"}, ["that: absent"])
    assert content["command"] == "python -m benchmarks.run --case toy"
    assert {"cpu", "cores", "flags"} <= content["machine"].keys()
    assert {"python", "torch", "numpy", "elmo_fast"} <= content["versions"].keys()
    with (tmp_path / "toy.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert (line["variant"], float(line["median"]), line["torch"]) == ("float32", 2.0, content["versions"]["torch"])
    assert load(tmp_path, "other") is None


def test_every_result_in_the_repository_can_be_read_and_names_its_machine():
    """benchmarks/results/*.json: no quick look among them, each with a commit and a processor."""
    for path in (machine.ROOT / "benchmarks" / "results").rglob("*.json"):
        content = results.load(path.parent, path.stem)
        assert not content.get("quick"), path
        for taken in content["runs"] if "commit" not in content else [content]:  # a file of several runs tells of each
            assert taken["commit"] != "unknown", path
            assert taken["machine"]["cpu"], path
        # Attacks measure nothing: they count, by kind, by run or in all.
        assert any(content.get(name) for name in ("rows", "kinds", "runs", "judged")), path


def test_worker_answers_and_says_how_it_died(tmp_path):
    """One JSON object per line each way; the error of a child that ends holds its last words."""
    script = tmp_path / "child.py"
    script.write_text(
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    if request['do'] == 'die':\n"
        "        sys.exit('so it goes')\n"
        "    print(json.dumps({'twice': 2 * request['value']}), flush=True)\n"
    )
    worker = Worker(sys.executable, script, [], {})
    assert worker.ask(do="twice", value=21) == {"twice": 42}
    with pytest.raises(RuntimeError, match="status 1:\nso it goes"):
        worker.ask(do="die")
    worker.close()


def test_the_runner_runs_a_case_and_writes_its_files(tmp_path, capsys):
    """`python -m benchmarks.run --case text --quick` end to end, on three sentences."""
    from benchmarks.run import main

    text = tmp_path / "text.txt"
    text.write_text("a first sentence\nand a second one .\nthe third\n", encoding="utf-8")
    assert main(["--case", "text", "--quick", "--text", str(text), "--out", str(tmp_path / "out")]) == 0
    content = json.loads((tmp_path / "out" / "text.json").read_text())
    assert [each["unit"] for each in content["rows"]] == ["tokens/s", "tokens/s"]
    assert content["quick"] is True
    assert "running text" in capsys.readouterr().out
