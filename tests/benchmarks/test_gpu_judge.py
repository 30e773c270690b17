"""Goals, ratios, shares and errors of a comparison, on rows that are made up; and the table that they become."""

import math

import pytest
import torch

from benchmarks import machine, results, table
from benchmarks.gpu import plan
from benchmarks.gpu.compare import errors
from benchmarks.gpu.judge import COMPILED, OURS, Aim, What, judged
from benchmarks.gpu.roofline import Work
from benchmarks.results import GpuRow, Report, load, row, save

CEILINGS = {"copy": 1e12, "bfloat16": 1e14, "float32": 1e13}


def sides(unit="us", **medians):
    """One row per side, "_graph" appended for a second way of launching."""
    rows = []
    for name, median in medians.items():
        side, _, way = name.partition("_")
        new = row("a case", side.replace("compile", COMPILED).replace("ours", OURS), [median], threads=1, unit=unit,
                  kind=GpuRow)  # fmt: skip
        new.ours, new.launched, new.error = side == "ours", way or "one by one", 1e-3
        rows.append(new)
    return rows


def test_each_side_counts_by_its_better_way_of_launching():
    rows = sides(ours=30.0, ours_graph=10.0, eager=20.0, eager_graph=15.0)
    best = judged(What("a case", "bfloat16", "us", aims=(Aim("faster", 2.0, "eager"),)), rows, CEILINGS)
    ours = best[OURS]
    assert (ours.launched, ours.against, ours.ratio) == ("graph", "eager", 1.5)
    assert ours.aims == [{"text": ">= 2 x eager", "reached": False}]
    assert rows[0].aims == []


@pytest.mark.parametrize(("unit", "ours", "compiled", "fine"), [
    ("us", 10.0, 11.0, True), ("us", 11.0, 10.0, False),
    ("tokens/s", 11.0, 10.0, True), ("tokens/s", 10.0, 11.0, False),
])  # fmt: skip
def test_slower_than_torch_compile_is_told_without_being_asked(unit, ours, compiled, fine):
    best = judged(What("a case", "bfloat16", unit), sides(unit, ours=ours, compile=compiled), CEILINGS)
    assert best[OURS].aims == [{"text": ">= 1 x torch.compile", "reached": fine}]


@pytest.mark.parametrize(("unit", "value", "fine"), [
    ("us", 10.0, True), ("us", 9.9, False), ("tokens/s", 10.0, True), ("tokens/s", 10.1, False),
])  # fmt: skip
def test_values_aimed_at_are_bounds_of_times_and_of_rates(unit, value, fine):
    best = judged(What("a case", "bfloat16", unit, aims=(Aim("value", value),)), sides(unit, ours=10.0), CEILINGS)
    assert [aim["reached"] for aim in best[OURS].aims] == [fine]


def test_floor_and_share():
    """1e9 operations at 1e14/s are 10 us, 2 us a step of five; a rate's floor is the most it could be."""
    rows = sides(ours=4.0)
    judged(What("a case", "bfloat16", "us", 5, Work(1e9, 1e6)), rows, CEILINGS)
    assert (rows[0].floor, rows[0].bound, rows[0].share) == (2.0, "arithmetic", 0.5)
    rows = sides("tokens/s", ours=2.5e5)
    judged(What("a case", "bfloat16", "tokens/s", 5, Work(1e9, 1e6)), rows, CEILINGS)
    assert (rows[0].floor, rows[0].share) == (5e5, 0.5)


@pytest.mark.parametrize(("ours", "fine"), [(10.0, True), (10.1, False), (None, False)])
def test_memory_aimed_at(ours, fine):
    rows = sides(ours=1.0, eager=1.0)
    rows[0].memory, rows[1].memory = ours, 100.0
    best = judged(What("a case", "bfloat16", aims=(Aim("memory", 0.1, "eager"),)), rows, CEILINGS)
    assert best[OURS].aims == [{"text": "<= 1/10 of eager's memory", "reached": fine}]


@pytest.mark.parametrize(("share", "fine"), [(0.8, True), (0.79, False)])
def test_share_of_the_bandwidth_aimed_at(share, fine):
    rows = sides(ours=1.0 / share)
    judged(What("a case", "float32", "us", work=Work(0, 1e6), aims=(Aim("share", 0.8),)), rows, CEILINGS)
    assert rows[0].aims == [{"text": ">= 80 % of copy bandwidth", "reached": fine}]


def test_an_aim_against_a_side_that_failed_is_not_told_as_reached():
    best = judged(What("a case", "bfloat16", aims=(Aim("faster", 2.0, "eager"),)), sides(ours=1.0), CEILINGS)
    assert best[OURS].aims == []


def test_errors_are_relative_and_the_largest_counts():
    truth = {"a": torch.tensor([3.0, 4.0]), "b": torch.ones(2)}
    found = {"a": torch.tensor([3.0, 4.5]), "b": torch.ones(2), "c": torch.zeros(1)}
    assert errors(found, truth) == pytest.approx(0.1)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="c holds NaN or infinity"):
            errors(found | {"c": torch.tensor([bad])}, truth)
    with pytest.raises(ValueError, match="a has shape"):
        errors({"a": torch.ones(3)}, truth)


def about(**more):
    gpu = {"gpu": "Some GPU", "driver": "1.2", "cuda": "13.0"}
    told = machine.describe("make gpu SECTION=mix") | {"gpu": gpu, "run": "1", "quick": False, "complete": True}
    told["versions"]["triton"] = "3.6.0"
    return told | {"rehearsal": False} | more


def test_the_table_says_what_the_files_say(tmp_path):
    """Goal, ours by both ways of launching, floor, share, rivals with their ratios; tests, failures, provenance."""
    rows = sides(ours=40.0, ours_graph=20.0, eager=100.0, compile=30.0)
    what = What("a case", "bfloat16", "us", 1, Work(1e9, 0), (Aim("value", 25), Aim("faster", 6, "eager")))
    judged(what, rows, CEILINGS)
    save(tmp_path, "gpu_mix", Report(rows, failures=["another case: wrong"], skipped=["a third: absent"]), about())
    tests = row("tests/ops/test_x.py", "pytest", [3], threads=1, unit="tests passed", kind=GpuRow)
    save(tmp_path, "gpu_tests", Report([tests], {"passed": 3}), about())
    said = table.filled("<!-- bench:gpu -->\nold\n<!-- /bench:gpu -->\n", tmp_path)
    assert (
        "| a case | <= 25 us: reached; >= 6 x eager: **not reached**; >= 1 x torch.compile: reached "
        "| **20 us** (graph; 40 one by one) | 10 (arithmetic) | 50 % "
        "| torch.compile 30 us (1.5 x), eager 100 us (5 x) |"
    ) in said
    assert "3 tests passed on it." in said
    assert "**Failed** (mix): another case: wrong." in said
    assert "Left out (mix): a third: absent." in said
    assert "Some GPU, driver 1.2, CUDA 13.0" in said
    assert "Triton 3.6.0" in said
    assert "No GPU has run" not in said
    back = load(tmp_path, "gpu_mix")
    assert back["rows"] == rows
    assert back["failures"] == ["another case: wrong"]
    first = (tmp_path / "gpu_mix.csv").read_text().splitlines()[1]
    assert "Some GPU,1.2,13.0,3.6.0" in first
    assert ">= 6 x eager: not reached" in (tmp_path / "gpu_mix.csv").read_text()


def test_memory_stands_in_the_table_where_it_is_aimed_at(tmp_path):
    rows = sides(ours=1.0, eager=2.0)
    rows[0].memory, rows[1].memory = 12.0, 400.0
    judged(What("a case", "bfloat16", aims=(Aim("memory", 0.1, "eager"),)), rows, CEILINGS)
    save(tmp_path, "gpu_softmax", Report(rows), about())
    assert "**1 us, 12 MiB** (one by one)" in table.gpu(tmp_path)
    assert "eager 2 us, 400 MiB (2 x)" in table.gpu(tmp_path)


def test_without_results_or_with_a_rehearsal_alone_the_page_says_that_no_gpu_has_run(tmp_path):
    assert table.gpu(tmp_path).startswith("No GPU has run these kernels yet")
    save(tmp_path, "gpu_mix", Report(sides(ours=1.0)), about(rehearsal=True))
    assert table.gpu(tmp_path).startswith("No GPU has run these kernels yet")
    assert "a REHEARSAL: no figure means anything" in table.gpu(tmp_path, rehearsals=True)


def test_no_rehearsal_is_among_the_results():
    for path in table.RESULTS.glob("gpu_*.json"):
        content = results.load(path.parent, path.stem)
        assert content["rehearsal"] is False, path
        assert content["complete"] is True, path
        assert content["gpu"]["gpu"] not in ("none", "unknown"), path


def test_all_sections_fit_into_nine_minutes():
    assert sum(each.seconds for each in plan.SECTIONS.values()) <= plan.TOTAL <= 540


def test_named_sections_bring_what_they_need_in_order():
    assert plan.chosen(None) == list(plan.ORDER)
    assert plan.chosen(["softmax", "lstm"]) == ["build", "ceilings", "lstm", "softmax"]
    assert plan.chosen(["tests"]) == ["build", "tests"]


def test_time_that_is_not_used_goes_to_the_next_section():
    sections = ["ceilings", "lstm", "mix"]
    share = {name: plan.SECTIONS[name].seconds for name in sections}
    assert plan.allowed("lstm", sections, 500.0) == 500.0 - share["mix"]
    assert plan.allowed("lstm", sections, share["lstm"] + 1) == share["lstm"]
    assert plan.allowed("mix", sections, 3.0) == 3.0


def test_every_section_is_a_module_and_in_the_table():
    folder = machine.ROOT / "benchmarks" / "gpu" / "sections"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(plan.ORDER)
    assert [name for name in plan.ORDER if name != "build"] == list(table.GPU_SECTIONS)
