"""Tables, chart and appendix are what the result files say, and nothing else."""

from benchmarks import table

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
