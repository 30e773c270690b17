"""The persistent scan reads its weights once, before the time loop, and what others write only behind its wait.

What the compiler made of the loop is in the golden table, to which test_compile.py holds the code.
"""

import json
import pathlib

TABLE = pathlib.Path(__file__).with_name("projected_lstm_persistent.json")

STEP = ["h", "product", "arrive", "wait", "hidden", "product", "arrive", "wait", "parts", "arrive", "gates", "wait"]


def complaints(told):
    """One sentence per thing that is not as the kernel's source says."""
    wrong = [
        f"{name} is not read before the time loop" for name in ("weight_hh", "weight_hr") if name not in told["before"]
    ]
    if told["within"] != STEP:
        wrong.append(f"a step is {told['within']}")
    wrong += [f"may come from the L1: {line}" for line in told["through_l1"]]
    return wrong if told["cooperative"] else [*wrong, "not a cooperative launch"]


def test_weights_stay_on_chip_and_reads_behind_their_waits():
    kernels = json.loads(TABLE.read_text(encoding="utf-8"))
    found = {f"{name}, {arch}": told for name, each in kernels.items() for arch, told in each.items()}
    assert len(found) >= 16
    assert {name: wrong for name, told in found.items() if (wrong := complaints(told))} == {}


def test_each_complaint_is_made():
    """The test above can fail."""
    fine = {"before": ["weight_hh", "weight_hr"], "within": STEP, "through_l1": [], "cooperative": True}
    assert complaints(fine) == []
    late = [*STEP[:4], "product", "hidden", *STEP[6:]]
    for change in ({"before": []}, {"within": late}, {"through_l1": ["tt.load"]}, {"cooperative": False}):
        assert complaints(fine | change)
