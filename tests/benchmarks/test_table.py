"""Tables, chart and appendix are what the result files say, and nothing else."""

import pytest

from benchmarks import machine, table


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
