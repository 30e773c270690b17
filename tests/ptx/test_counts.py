"""No op moves more than the table says: global and shared memory, products of the tensor cores, launches."""

import json

import pytest
import torch

from benchmarks import gpu_model
from elmo_fast.ops import scalar_mix
from tests.ptx import cases, measure, production

KEPT = json.loads(measure.COUNTS.read_text(encoding="utf-8"))
SLACK = 0.1


def complaints(kept: dict[str, int], found: dict[str, int]) -> list[str]:
    return [
        f"{name}: {found[name]}, and the table says {wanted}: look why, then `python -m tests.ptx.measure`"
        for name, wanted in kept.items()
        if abs(found[name] - wanted) > SLACK * wanted
    ]


@pytest.mark.parametrize("name", cases.PARAMETERS)
def test_counts_are_as_the_table_says(emulator, name):
    assert complaints(KEPT[name], measure.measured(emulator, name)) == []


def test_predictions_rest_on_what_is_counted_now(emulator):
    """benchmarks/results/gpu_counts.json, in one of its parts: the forward scan at production size."""
    name = next(name for name in production.WORKS if "16 rows" in name)
    kept = json.loads(gpu_model.COUNTS.read_text(encoding="utf-8"))[name]
    found = production.counted(emulator, name)
    assert [row["kernel"] for row in found] == [row["kernel"] for row in kept]
    for ours, theirs in zip(kept, found, strict=True):
        numbers = [{key: value for key, value in row.items() if key != "kernel"} for row in (ours, theirs)]
        assert complaints(*numbers) == [], "python -m tests.ptx.production"


@pytest.mark.parametrize("name", ["launches", "sectors_read", "sectors_written", "shared_bytes", "multiplications"])
def test_twice_as_much_is_seen(name):
    for kept in KEPT.values():
        twice = kept | {name: 2 * kept[name]}
        assert len(complaints(kept, twice)) == (kept[name] > 0)


def test_a_second_pass_over_the_layers_is_seen(emulator):
    """The table's own count, of a call that reads everything twice."""

    def twice():
        layers = [torch.randn(8, 16, 256) for _ in range(3)]
        for _ in range(2):
            scalar_mix(layers, torch.randn(2, 3), torch.randn(2), backend="triton")

    def once():
        scalar_mix([torch.randn(8, 16, 256) for _ in range(3)], torch.randn(2, 3), torch.randn(2), backend="triton")

    found = complaints(measure.counted(emulator, once), measure.counted(emulator, twice))
    assert any(line.startswith("sectors_read") for line in found)
    assert any(line.startswith("launches") for line in found)
