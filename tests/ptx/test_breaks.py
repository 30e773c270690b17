"""Every barrier, wait, ordering and scope of the compiled kernels, and some of their masks, removed one by one."""

import json

import pytest

from tests.ptx import cases, measure

KEPT = json.loads(measure.BREAKS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", cases.PARAMETERS)
def test_breaks_are_found(emulator, name):
    """No more of them go unnoticed than the table has; `python -m tests.ptx.measure` writes it after a change."""
    for kernel, row in measure.found_breaks(emulator, name).items():
        for kind, (found, tried) in row.items():
            kept_found, kept_tried = KEPT[name].get(kernel, {}).get(kind, (0, 0))
            missed, kept = tried - found, kept_tried - kept_found
            assert missed <= kept, f"{kernel}: {missed} of {tried} breaks of {kind} went unnoticed, in the table {kept}"


def test_of_what_blocks_wait_for_nothing_can_be_missed():
    """The table itself: every atomic's order and scope, and every wait for a copy that is read afterwards."""
    rows = [
        (name, kernel, kind, *row[kind]) for name, each in KEPT.items() for kernel, row in each.items() for kind in row
    ]
    assert {kind for _, _, kind, _, _ in rows} == {"barrier", "seldom", "wait", "mask", "order", "scope"}
    assert [row for row in rows if row[2] in ("order", "scope") and row[3] < row[4]] == []
    # A loop's last wait, for copies that nobody reads: none are under way any more.
    assert all(tried - found <= 2 for _, _, kind, found, tried in rows if kind == "wait")


def test_a_barrier_that_a_case_seldom_passes_is_found_in_another():
    """Else nothing would say whether it is needed."""
    rows = [(kernel, row) for each in KEPT.values() for kernel, row in each.items() if "barrier" in row]
    clear = {kernel for kernel, row in rows if row["barrier"][0] == row["barrier"][1]}
    assert {kernel for kernel, row in rows if "seldom" in row} <= clear
