"""Every case runs in its quick form, but for those that take long even so."""

import importlib
import random

import pytest

from benchmarks.cases import CASES, Settings

LONG = ("pretrain", "demo", "static_quality", "scaling")


@pytest.mark.parametrize("case", [case for case in CASES if case not in LONG])
def test_a_quick_case_gives_rows(case, tmp_path):
    """Numbers above zero for each side that is there, on a text of 300 sentences."""
    random.seed(0)
    text = tmp_path / "text.txt"
    words = [f"word{i}" for i in range(400)]
    text.write_text("".join(" ".join(random.choices(words, k=random.randint(1, 30))) + "\n" for _ in range(300)))
    report = importlib.import_module(f"benchmarks.cases.{case}").run(Settings(quick=True, text=text, peer_python=None))
    assert len(report.rows) >= 2
    assert all(row.median > 0 for row in report.rows)
    assert not report.failures
