"""Tables, chart and appendix are what the result files say, and nothing else."""

import json

import pytest

from benchmarks import machine, table
from tests.fuzz.__main__ import add


def results_of(folder, *, ratio):
    """Write a result of `embed` in which elmo_fast is `ratio` times as fast as AllenNLP."""

    def row(side, median, **more):
        return {"variant": "batches of 32", "side": side, "threads": 1, "unit": "tokens/s", "samples": 3,
                "median": median, "p20": median, "p80": median, **more}  # fmt: skip

    rows = [row("AllenNLP", 100.0) | {"p80": 118.0}]
    for precision, factor in (("float32", 1), ("bfloat16", 4)):
        more = {"against": "AllenNLP", "ratio": ratio * factor, "error": 2e-6, "error_to": "AllenNLP"}
        rows.append(row(f"elmo_fast, {precision}", 100.0 * ratio * factor, **more))
    carried = {"float32": "3.0e-05", "bfloat16": "1.5e+00"}
    notes = {"AllenNLP": "2.10.1", "text": "a text", "max difference when the state is carried over 4": carried}
    save_rows(folder, "embed", rows, notes)


def save_rows(folder, case, rows, notes):
    about = machine.describe("make bench")
    table.save({"case": case, **about, "notes": notes, "skipped": [], "rows": rows}, folder)


def test_a_result_without_the_row_that_a_table_shows_is_an_error(tmp_path):
    """Else a renamed row leaves its machine out of the table."""
    results_of(tmp_path, ratio=5)
    path = next(tmp_path.rglob("embed.json"))
    path.write_text(path.read_text().replace("batches of 32", "batch 32"))
    with pytest.raises(KeyError, match=r"no row \('batches of 32', 'elmo_fast, float32'\) for the summary"):
        table.summary(tmp_path)


def gpu_row(variant, side, median, unit="ms", **more):
    return {"variant": variant, "side": side, "threads": 1, "unit": unit, "samples": 1, "median": median,
            "p20": median, "p80": median, "against": "eager", **more}  # fmt: skip


def test_a_kernel_that_hardly_beats_the_fastest_rival_is_deleted_next():
    """The fastest side of each; a rate is better if higher; no rival, no row; memory is not judged."""
    rows = [
        gpu_row("slow", "elmo_fast", 2.0),
        gpu_row("slow", "elmo_fast, graph", 1.0),
        gpu_row("slow", "eager", 3.0),
        gpu_row("slow", "torch.compile", 1.1),
        gpu_row("fast", "elmo_fast", 100.0, "tokens/s"),
        gpu_row("fast", "eager", 80.0, "tokens/s"),
        gpu_row("slower", "elmo_fast", 50.0, "tokens/s"),
        gpu_row("slower", "eager", 100.0, "tokens/s"),
        gpu_row("alone", "elmo_fast, split, 1 stream, graph", 1.0, "us"),
        gpu_row("alone", "elmo_fast, fused, 1 stream, graph", 1.0, "us"),
        gpu_row("memory", "elmo_fast", 9.0, "MiB"),
        gpu_row("memory", "eager", 1.0, "MiB"),
    ]
    assert table.deleted_next({"rows": rows}).splitlines()[2:] == [
        "| slower | elmo_fast | eager | 0.5x |",
        "| slow | elmo_fast, graph | torch.compile | 1.1x |",
    ]
    assert table.deleted_next({"rows": rows[4:6]}) == ""


def test_a_run_of_an_older_commit_is_left_out(tmp_path, capsys):
    """Its rows would be labelled with the newest run's commit."""
    info = {"case": "gpu", "unit": "ms", "amount": 1e3, "variant": "v", "figures": [], "notes": {}}
    for name, commit, date in (("new", "b", "2026-01-02"), ("old", "a", "2026-01-01")):
        about = machine.describe("make gpu") | {"commit": commit, "date": date}
        rows = [{"extra_info": {**info, "side": f"side of {commit}"}, "stats": {"data": [1.0]}}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"elmo_fast": about, "benchmarks": rows}))
    table.main(["--show", *map(str, sorted(tmp_path.glob("*.json")))])
    printed = capsys.readouterr().out
    assert "1 of these files are of a different commit" in printed
    assert "| v | side of b |" in printed
    assert "side of a" not in printed


PAGES = [table.README, *sorted((table.ROOT / "docs").glob("*.md"))]


def test_pages_hold_what_the_results_say():
    """The pages, the chart and the appendix equal their generated text: no figure in them was typed by hand."""
    written = table.written()
    assert {table.README, table.CHART, table.APPENDIX} <= written.keys()
    assert any(table.MARKED.search(text) for text in written.values())
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `python -m benchmarks.table`"


def test_every_marker_is_closed_and_known():
    """A misspelt or open marker would freeze its table unnoticed."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        matched = [actual[2] for actual in table.MARKED.finditer(text)]
        assert text.count("<!-- bench:") == text.count("<!-- /bench:") == len(matched)
        assert set(matched) <= {
            *table.cases(),
            *table.RENDERED,
            "summary",
        }


def test_runs_of_the_attacks_are_summed(tmp_path):
    """Cases by kind and findings of all runs."""
    path = tmp_path / "fuzz.json"
    for count in (1, 2):
        add(path, {"op_rows": 1000 * count, "hdf5": 30, "command_line": 4}, [{"case": "hdf5:1"}] * count, 5.0)
    output = table.render("fuzz", tmp_path)
    assert (
        "2 runs, 3,068 cases (3,000 of ops, 60 of files, 8 of command lines), 3 findings, 2 of them in the last"
        in output
    )
