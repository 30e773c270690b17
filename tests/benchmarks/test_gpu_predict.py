"""Predicted times against numbers worked out by hand, and the table that shows them."""

import json

import pytest
import torch

from benchmarks.gpu import eager, predict

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
    lines = predict.table().splitlines()
    assert lines[0].startswith("| predicted, not measured | launches | H100 SXM | H200 SXM | A100 SXM | RTX 4090 |")
    assert sum("both directions" in line for line in lines) == 2
    assert any(line.startswith("| training step, 128 x 20") for line in lines)
    assert sum(line.startswith("| eager torch, the same |") for line in lines) == len(predict.read(predict.COUNTED))


def test_a_replayed_step_takes_the_host_its_graph_and_what_is_launched_beside():
    wanted = 15e-6 + (252 + predict.OF_TORCH) * 0.58e-6 + 15 * 18e-6
    assert predict.replayed(252) == pytest.approx(wanted)


def test_eager_torch_reads_and_writes_each_ops_tensors():
    """Views and memory that is only allocated cost nothing, a look-up reads the rows that it gives."""
    ids = torch.zeros(6, dtype=torch.int64)
    with torch.no_grad(), eager.Launches() as found:
        x, table = torch.empty(3, 4), torch.empty(100, 4)
        x.t().expand(2, 4, 3).transpose(0, 1)
        (x @ torch.empty(4, 5)).relu_()
        torch.nn.functional.embedding(ids, table)
        x + torch.empty(1, 1).expand(3, 4)
    rows = {row["kernel"]: (row["launches"], row["distinct"], row["multiplications"]) for row in found.rows}
    mm, relu = (1, 4 * (12 + 20 + 15), 60), (1, 2 * 4 * 15, 0)
    assert rows == {"mm": mm, "relu_": relu, "embedding": (1, 8 * 6 + 2 * 4 * 24, 0), "add": (1, 4 * (12 + 1 + 12), 0)}


def test_eager_torch_is_counted_as_the_file_says():
    """Of this version of torch, in one of its parts."""
    name = "sampled_softmax, 2560 rows, 8192 samples"
    kept = json.loads(predict.OF_EAGER.read_text(encoding="utf-8"))
    assert list(kept) == list(eager.WORKS) == list(json.loads(predict.COUNTED.read_text(encoding="utf-8")))
    assert eager.counted(name) == kept[name], "python -m benchmarks.gpu.eager"
