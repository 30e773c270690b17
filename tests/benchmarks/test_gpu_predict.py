"""Predicted times against numbers worked out by hand, and the table that shows them."""

import pytest

from benchmarks import table
from benchmarks.gpu import predict

H100 = predict.GPUS[0]
ROW = {
    "kernel": "cells", "launches": 40, "blocks": 128, "warps": 8, "l2": 75_890_688, "distinct": 53_801_711,
    "shared": 390_205_952, "multiplications": 2_147_483_648,
}  # fmt: skip


def test_a_launch_keeps_each_unit_busy():
    """128 of 132 multiprocessors at work, 128 bytes a clock each; 3.8 MB more than the L2 holds come from memory."""
    found = predict.times(ROW, H100)
    assert found["shared memory"] == pytest.approx(390_205_952 / 128 / 128 / 1.83e9)
    assert found["tensor cores"] == pytest.approx(2 * 2_147_483_648 / 128 * 132 / 989.4e12)
    assert found["L2"] == pytest.approx(75_890_688 / 5120 / 1.83e9)
    assert found["memory"] == pytest.approx(3_801_711 / 3.35e12)
    assert predict.times(ROW | {"launches": 1}, H100)["memory"] == pytest.approx(53_801_711 / 3.35e12)
    assert predict.seconds([ROW], H100) == pytest.approx(40 * (13.013e-6 + 1e-6), rel=1e-3)
    assert predict.bound([ROW], H100) == "shared memory"


def test_a_block_more_than_there_are_multiprocessors_takes_another_turn():
    once, twice = (predict.times(ROW | {"blocks": blocks, "shared": blocks}, H100) for blocks in (132, 133))
    assert twice["shared memory"] == pytest.approx(2 * once["shared memory"])


def test_a_step_of_the_scan_is_its_two_kernels():
    rows = [ROW | {"launches": 20}, ROW | {"kernel": "last", "launches": 1}]
    step = predict.step_of(rows)
    assert [(row["kernel"], row["launches"]) for row in step] == [("cells", 1)]
    assert predict.times(step[0], H100) == predict.times(rows[0], H100)


def test_the_table_says_that_nothing_was_measured():
    lines = predict.table(table.table).splitlines()
    assert lines[0].startswith("| predicted, not measured | launches | H100 SXM | H200 SXM | A100 SXM | RTX 4090 |")
    assert sum("both directions" in line for line in lines) == 2
    assert any(line.startswith("| training step, 128 x 20") for line in lines)
