"""How much each kernel launches, moves and multiplies, and what a deliberately pessimistic model makes of it.

The counts come from the emulator of PTX, at production shapes in float16 (`python -m tests.ptx.production` writes
benchmarks/results/gpu_counts.json). The model's times are PREDICTIONS for one H100 and rest on the constants below.
"""

import json
import math
import pathlib
from typing import Any

from benchmarks.machine import ROOT

COUNTS = ROOT / "benchmarks" / "results" / "gpu_counts.json"
PRODUCT = "product by torch"  # what cuBLAS computes
PRECISION = "float16"
Launches = list[dict[str, Any]]

# An H100 SXM, by NVIDIA's data sheet, and what kernels reach of it.
MULTIPROCESSORS, SCHEDULERS, CLOCK = 132, 4, 1.83e9
MEMORY = 3.35e12  # bytes a second
L2, L2_SIZE = 5.7e12, 30e6  # bytes a second, shared by concurrent kernels; bytes that are usable
PEAK = 989.4e12  # operations a second of 16-bit products
REACHED = {True: 0.65, False: 0.5}  # of the peak, by cuBLAS and by Triton
LAUNCH = 2e-6  # seconds
# Instructions per warp of what follows the product, counted in the machine code of sm_90a.
EPILOGUES = {"cells": 2231, "cells_backward": 3681}


def seconds(row: dict[str, Any]) -> float:
    """Predict the time of one launch: its start, the unit that it keeps busy longest, and its epilogue."""
    blocks = row.get("blocks", MULTIPROCESSORS)
    uneven = math.ceil(blocks / MULTIPROCESSORS) * MULTIPROCESSORS / blocks
    again = "l2" in row and row.get("again", row["launches"] > 1)
    fetched = max(0.0, row["distinct"] - L2_SIZE) if again else row["distinct"]
    products = uneven * 2 * row["multiplications"] / (PEAK * REACHED[row["kernel"] == PRODUCT])
    instructions = EPILOGUES.get(row["kernel"], 0) * row.get("warps", 0) * math.ceil(blocks / MULTIPROCESSORS)
    return LAUNCH + max(fetched / MEMORY, row.get("l2", 0) / L2, products) + instructions / (SCHEDULERS * CLOCK)


def works(counts: dict[str, Launches]) -> dict[str, Launches]:
    """Add a whole training step to what is counted."""
    layer, losses = counts["an LSTM layer, 128 rows, 20 steps"], 2 * counts["sampled_softmax, 2560 rows, 8192 samples"]
    once = [row for name in counts if name.startswith(("char_cnn", "highway", "adagrad")) for row in counts[name]]
    return counts | {"training step, 128 x 20, two layers": [*2 * layer, *losses, *once]}


def table(path: pathlib.Path = COUNTS) -> str:
    """Return the counts and the model's times as Markdown."""
    lines = [
        "| counted, float16 | launches | distinct bytes | bytes through L2 | multiply-adds | PREDICTED, H100 |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for name, rows in works(json.loads(path.read_text(encoding="utf-8"))).items():
        launches = sum(row["launches"] for row in rows)
        moved, shared, products = (
            sum(row["launches"] * row.get(key, 0) for row in rows) for key in ("distinct", "l2", "multiplications")
        )
        time = sum(row["launches"] * seconds(row) for row in rows)
        figures = f"{moved / 1e9:.2f} GB | {shared / 1e9:.2f} GB | {products / 1e9:.1f} G | {1e3 * time:.2f} ms"
        lines.append(f"| {name} | {launches} | {figures} |")
    return "\n".join([*lines, "", "Reproduce: `python -m tests.ptx.production`, then `python -m benchmarks.table`."])


def write(counts: dict[str, Launches], path: pathlib.Path = COUNTS) -> None:
    """Write the counts, a launch a line."""
    rows = {name: ",\n".join(f"  {json.dumps(row)}" for row in launches) for name, launches in counts.items()}
    lines = (f" {json.dumps(name)}: [\n{each}\n ]" for name, each in rows.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
