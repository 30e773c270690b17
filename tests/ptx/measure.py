"""What each op moves and multiplies at a fixed shape, and which breaks of its kernels are found, in the emulator.

`python -m tests.ptx.measure [OP ...]` writes counts.json and breaks.json; test_counts.py and test_breaks.py hold the
kernels to them. A sector is 32 bytes that a warp's access asks of the L2 (counts.py).
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import torch

from tests.ptx import breaks, cases
from tests.ptx.counts import Counts

COUNTS, BREAKS = (pathlib.Path(__file__).with_name(f"{name}.json") for name in ("counts", "breaks"))
SHAPES: dict[str, dict] = {
    "highway": {"rows": 256, "width": 256},
    "char_cnn": {"rows": 64},
    "projected_lstm": {"batch": 32, "size": 64, "cells": 256},
    "persistent": {"batch": 16, "size": 64, "cells": 256},
    "scalar_mix": {"shape": (8, 16, 256)},
    "unique_rows": {"rows": 512, "entries": 64, "width": 128},
    "full_softmax": {"rows": 128, "width": 128, "words": 512},
    "sampled_softmax": {"rows": 128, "width": 128, "words": 1000, "samples": 256},
    "negative_sampling": {"rows": 128, "width": 128, "words": 1000, "samples": 256},
    "hierarchical_softmax": {"rows": 64, "width": 128, "words": 1000, "deep": False},
    "softmax_parts": {"rows": 64, "parts": 256},
    "target_rows": {"rows": 64, "width": 512},
    "adagrad": {"rows": 500, "words": 100, "width": 128},
    "log_uniform_sample": {"sizes": ((3000, 100_000),)},
    "char_cnn_backward": {"rows": 64},
}


def counted(emulator, call: Callable[[], None]) -> dict[str, int]:
    """What the launches of one call count to."""
    torch.manual_seed(0)
    emulator.counts, emulator.random = Counts(), np.random.default_rng(0)
    call()
    # What an atomic finds, and how often a block waits, depends on the order of blocks.
    found = dataclasses.asdict(emulator.counts)
    return {key: value for key, value in found.items() if key not in ("changes", "passed")}


def measured(emulator, name: str) -> dict[str, int]:
    return counted(emulator, lambda: cases.CASES[name](**SHAPES[name]))


def found_breaks(emulator, name: str) -> dict[str, dict[str, list[int]]]:
    """kernel -> `breaks.tried` of it, for the op's small case."""
    torch.manual_seed(0)
    with cases.small_blocks():
        recorded = breaks.record(emulator, cases.CASES[name])
    return {kernel: breaks.tried(one) for kernel, one in recorded.items()}


def renew(path: pathlib.Path, rows: dict[str, dict]) -> None:
    """Puts the rows into a table, one line each."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    table = {name: rows.get(name, kept.get(name)) for name in SHAPES if name in rows or name in kept}
    lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in table.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    from tests.ptx import plugin

    emulator = plugin.install()
    torch.use_deterministic_algorithms(True)  # what torch.empty returns is NaN, as in the tests
    names = sys.argv[1:] or list(SHAPES)
    renew(COUNTS, {name: measured(emulator, name) for name in names})
    renew(BREAKS, {name: found_breaks(emulator, name) for name in names})


if __name__ == "__main__":
    main()
