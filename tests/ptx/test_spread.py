"""projected_lstm's split products in the emulator: blocks that wait for each other, as compiled, in random order."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from elmo_fast.ops.projected_lstm import host, host_backward
from tests.ops.test_spread_sum import alone, case, results, small  # noqa: F401  (a fixture)
from tests.ptx import breaks


def spread_or_not(monkeypatch, whether):
    for module in (host, host_backward):
        monkeypatch.setattr(module, "spreads", lambda *_: whether)


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_all_blocks_add_the_bits_that_the_last_one_adds(emulator, precision, monkeypatch):
    given = case()
    spread_or_not(monkeypatch, False)
    last_alone = results(given, precision, alone(), alone())
    spread_or_not(monkeypatch, True)
    for ours, theirs in zip(results(given, precision, alone(), alone()), last_alone, strict=True):
        assert torch.equal(ours, theirs)


def test_no_order_between_them_can_be_missing(emulator, monkeypatch):
    """Each release, acquire and scope, removed, is a race."""
    spread_or_not(monkeypatch, True)
    recorded = breaks.record(emulator, lambda: results(case(), "float16", alone(), alone()))
    rows = [breaks.tried(one) for one in recorded.values() if one[0].launch.cooperative]
    assert len(rows) == 2
    for row in rows:
        assert row["order"][0] == row["order"][1] >= 3
        assert row["scope"][0] == row["scope"][1] >= 3
