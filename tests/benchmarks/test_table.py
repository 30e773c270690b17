"""README.md's tables are what the result files say, and nothing else."""

import json

import pytest

from benchmarks import machine, table
from tests.fuzz.figures import add


@pytest.mark.parametrize(
    ("value", "words"), [(12345.0, "12,300"), (141.6, "142"), (1.638, "1.64"), (0.01234, "0.0123"), (999.6, "1,000")]
)
def test_numbers_have_three_digits(value, words):
    assert table.number(value) == words


@pytest.mark.parametrize(("value", "words"), [(3.14e-6, "3.1e-6"), (0.0, "0"), (0.012, "1.2e-2")])
def test_errors_are_short(value, words):
    assert table.small(value) == words


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


def test_text_between_markers_is_written_anew(tmp_path):
    """Both tables follow the result file; what stands around them stays; running it again changes nothing."""
    text = (
        "before\n<!-- bench:comparison -->\nold 99\n<!-- /bench:comparison -->\nbetween\n"
        "<!-- bench:embed -->\n<!-- /bench:embed -->\nafter\n"
    )
    results_of(tmp_path, ratio=5)
    about = machine.describe("")
    used, cpu, date = machine.instruction_set(), about["machine"]["cpu"], about["date"].split()[0]
    filled = table.filled(text, tmp_path)
    heading = "| CPU (instruction set) | AllenNLP 2.10.1 | `float32` | `bfloat16` | `int8` |"
    assert filled.startswith(f"before\n<!-- bench:comparison -->\n{heading}\n")
    assert f"| {cpu} ({used}), {date} | 100 | 500 (**5x**) | 2,000 (**20x**) |  |" in filled
    assert "| largest difference, stateless / carried state |  | 2.0e-6 / 3.0e-5 | 2.0e-6 / 1.5 |  |" in filled
    assert "| batches of 32 | AllenNLP | 1 | 100 tokens/s (100 to 118) |  |  |" in filled
    mine = "| batches of 32 | elmo_fast, float32 | 1 | 500 tokens/s |"
    assert f"{mine} **5x** AllenNLP | 2.0e-6 from AllenNLP |" in filled
    assert "\n- text: a text\n" in filled
    assert "\n- reproduce: `make bench CASE=embed`\n" in filled
    assert "old 99" not in filled
    assert filled.endswith("<!-- /bench:embed -->\nafter\n")
    assert table.filled(filled, tmp_path) == filled
    results_of(tmp_path, ratio=6)
    assert table.filled(filled, tmp_path) != filled


def test_a_limit_and_older_code_are_said(tmp_path, monkeypatch):
    """A CPU with AVX-512 held to AVX2 is not one with AVX2 alone; figures of replaced kernels carry their date."""
    monkeypatch.setenv("ELMO_FAST_ISA", "avx2")
    monkeypatch.setattr(machine, "cpuinfo", lambda: {"model name": "A CPU", "flags": "avx2 avx512f"})
    results_of(tmp_path, ratio=5)
    used = machine.instruction_set()
    told = table.render("comparison", tmp_path)
    assert f"| A CPU ({used}, limited by ELMO_FAST_ISA=avx2 on a CPU with AVX-512), " in told
    content = json.loads((tmp_path / used / "embed.json").read_text())
    del content["machine"]["limit"]
    monkeypatch.setattr(table, "OUTDATED", {content["commit"]: "before the kernels were replaced"})
    (tmp_path / used / "embed.json").write_text(json.dumps(content))
    told = table.render("comparison", tmp_path)
    assert f"| A CPU ({used}), {content['date'].split()[0]}, older code | 100 |" in told
    assert told.endswith("; before the kernels were replaced")


def test_cpus_of_one_instruction_set_have_results_of_their_own(tmp_path, monkeypatch):
    """Two generations: both are told, with names that differ; a CPU without family and model has the set alone."""
    for generation, ratio in (
        ({"cpu family": "25", "model": "17"}, 5),
        ({"cpu family": "26", "model": "2"}, 6),
        ({}, 7),
    ):
        monkeypatch.setattr(machine, "cpuinfo", lambda generation=generation: {"model name": "A CPU"} | generation)
        results_of(tmp_path, ratio=ratio)
    used = machine.instruction_set()
    assert sorted(each.name for each in tmp_path.iterdir()) == [used, f"{used}-25-17", f"{used}-26-2"]
    told, told_date = table.render("comparison", tmp_path), machine.describe("")["date"].split()[0]
    for name, speed in (("A CPU", 700), ("A CPU family 25 model 17", 500), ("A CPU family 26 model 2", 600)):
        assert f"| {name} ({used}), {told_date} | 100 | {speed} " in told


def test_a_case_that_was_never_run_says_so(tmp_path):
    assert "`make bench CASE=text`" in table.render("text", tmp_path)


PAGES = [table.README, *sorted((table.ROOT / "docs").glob("*.md"))]


def test_pages_hold_what_the_results_say():
    """README.md and docs/ equal their generated text: no figure between the markers was typed by hand."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert table.MARKED.search(texts[0]), "README.md has no markers <!-- bench:NAME -->"
    assert any(table.MARKED.search(text) for text in texts[1:])
    for page, text in zip(PAGES, texts, strict=True):
        assert table.filled(text) == text, f"{page.name}: run `python -m benchmarks.table`"


def test_every_marker_is_closed_and_known():
    """A misspelt or open marker would freeze its table unnoticed."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        matched = [found[2] for found in table.MARKED.finditer(text)]
        assert text.count("<!-- bench:") == text.count("<!-- /bench:") == len(matched)
        assert set(matched) <= {
            *table.cases(),
            *table.RENDERED,
            "scaling",
            "embed_parts",
            "comparison",
            "gpu",
            "gpu_counts",
        }


def test_the_demonstration_is_told_in_one_sentence(tmp_path):
    rows = [{"median": 4e3}, {"median": 1e2}]
    save_rows(tmp_path, "demo", rows, {"seconds in all": 200, "held-out words": "12,345"})
    said = table.render("demo", tmp_path)
    assert "it took 200 s" in said
    assert "12,345 held-out words fell from 4,000 to 100, 40 times lower" in said


def test_runs_of_the_attacks_are_told_with_their_commits(tmp_path):
    """Cases by kind, findings, and their sum over all runs."""
    path = tmp_path / "fuzz.json"
    for count in (1, 2):
        add(path, {"op_rows": 1000 * count, "hdf5": 30, "command_line": 4}, [{"case": "hdf5:1"}] * count, 5.0)
    told = table.render("fuzz", tmp_path)
    assert "| 1,000 | 30 | 4 | 1 |" in told
    assert "| 2,000 | 30 | 4 | 2 |" in told
    assert "3,068 cases in all" in told
