"""Every barrier, wait, ordering, scope and mask of the compiled kernels, removed one by one."""

import json

import pytest

from tests.ptx import cases, masks, measure

KEPT = json.loads(measure.BREAKS.read_text(encoding="utf-8"))
FOUND_IN = json.loads(measure.MASKS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", cases.PARAMETERS)
def test_breaks_are_found(emulator, name):
    """No more of them go unnoticed than the table has; `python -m tests.ptx.measure` writes it after a change."""
    for kernel, row in measure.found_breaks(emulator, name).items():
        for kind, (found, tried) in row.items():
            kept_found, kept_tried = KEPT[name].get(kernel, {}).get(kind, (0, 0))
            missed, kept = tried - found, kept_tried - kept_found
            assert missed <= kept, f"{kernel}: {missed} of {tried} breaks of {kind} went unnoticed, in the table {kept}"


@pytest.mark.parametrize("name", [name for name in measure.CASES if name not in cases.OF_CUDA])
def test_masks_are_found(emulator, name):
    """Those of which the table says that this case finds them; the others are found in other cases."""
    found = measure.found_masks(emulator, name)
    assert [text for text, case in FOUND_IN.items() if case == name and not found.get(text)] == []


def test_each_mask_is_found_in_a_case_or_it_is_known_why_not():
    """Each masked load and store in the package's sources; `python -m tests.ptx.measure OP` writes the table."""
    assert FOUND_IN.keys() == masks.all_of_them()
    assert {text for text, case in FOUND_IN.items() if case is None} == masks.LEFT.keys()


def test_of_what_blocks_wait_for_nothing_can_be_missed():
    """The table itself: every atomic's order and scope, and every wait for a copy that is read afterwards."""
    rows = [
        (name, kernel, kind, *row[kind]) for name, each in KEPT.items() for kernel, row in each.items() for kind in row
    ]
    assert {kind for _, _, kind, _, _ in rows} == {"barrier", "seldom", "wait", "order", "scope"}
    assert [row for row in rows if row[2] in ("order", "scope") and row[3] < row[4]] == []
    # A loop's last wait, for copies that nobody reads: none are under way any more.
    assert all(tried - found <= 2 for _, _, kind, found, tried in rows if kind == "wait")


def test_a_barrier_that_a_case_seldom_passes_is_found_in_another():
    """Else nothing would say whether it is needed."""
    rows = [(kernel, row) for each in KEPT.values() for kernel, row in each.items() if "barrier" in row]
    clear = {kernel for kernel, row in rows if row["barrier"][0] == row["barrier"][1]}
    assert {kernel for kernel, row in rows if "seldom" in row} <= clear
