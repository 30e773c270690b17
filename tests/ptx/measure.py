"""What each op moves and multiplies at a fixed shape, and which breaks of its kernels are found, in the emulator.

`python -m tests.ptx.measure [OP ...]` writes counts.json, breaks.json, and masks.json, which says of each mask in which
case it is found; test_counts.py and test_breaks.py hold the kernels to them. A sector is 32 bytes that a warp's access
asks of the L2 (counts.py).
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import torch

from tests.ptx import breaks, cases, masks, odd_cases
from tests.ptx.counts import Counts

COUNTS, BREAKS, MASKS = (pathlib.Path(__file__).with_name(f"{name}.json") for name in ("counts", "breaks", "masks"))
SHAPES: dict[str, dict] = {
    "highway": {"rows": 256, "width": 256},
    "char_cnn": {"rows": 64},
    "projected_lstm": {"batch": 32, "size": 64, "cells": 256},
    "scalar_mix": {"shape": (8, 16, 256), "mixes": 2},
    "unique_rows": {"rows": 512, "entries": 64, "width": 128},
    "full_softmax": {"rows": 128, "width": 128, "words": 512},
    "sampled_softmax": {"rows": 128, "width": 128, "words": 1000, "samples": 256},
    "negative_sampling": {"rows": 128, "width": 128, "words": 1000, "samples": 256},
    "hierarchical_softmax": {"rows": 64, "width": 128, "words": 1000, "deep": False},
    "softmax_parts": {"rows": 64, "parts": 256},
    "target_rows": {"rows": 64, "width": 512},
    "padded_unique_rows": {"rows": 200, "width": 50},
    "adagrad_dense": {"sizes": (5000, 300)},
    "adagrad": {"rows": 500, "words": 100, "width": 128},
    "log_uniform_sample": {"sizes": ((3000, 100_000),)},
    "char_cnn_backward": {"rows": 64},
}


CASES = cases.CASES | odd_cases.CASES
"""all of them"""


def counted(emulator, call: Callable[[], None]) -> dict[str, int]:
    """What the launches of one call count to."""
    torch.manual_seed(0)
    emulator.counts, emulator.random = Counts(), np.random.default_rng(0)
    call()
    # How often a block passes a barrier depends on the order of blocks.
    found = dataclasses.asdict(emulator.counts)
    return {key: value for key, value in found.items() if key != "passed"}


def measured(emulator, name: str) -> dict[str, int]:
    return counted(emulator, lambda: cases.CASES[name](**SHAPES[name]))


def recorded(emulator, name: str) -> dict[str, list[breaks.Recorded]]:
    """`breaks.record` of the op's small case."""
    torch.manual_seed(0)
    with cases.small_blocks():
        return breaks.record(emulator, CASES[name])


def found_breaks(emulator, name: str) -> dict[str, dict[str, list[int]]]:
    """kernel -> `breaks.tried` of it"""
    return {kernel: breaks.tried(launches) for kernel, launches in recorded(emulator, name).items()}


def found_masks(emulator, name: str) -> dict[str, bool]:
    """Each masked load and store -> whether the case finds that its mask is gone, in any kernel."""
    found: dict[str, bool] = {}
    for launches in recorded(emulator, name).values():
        for text, seen in breaks.found_masks(launches).items():
            found[text] = seen or found.get(text, False)
    return found


def renew_masks(found: dict[str, dict[str, bool]]) -> None:
    """found: what `found_masks` gives, of each case. A mask keeps the case that it has while that finds it."""
    kept = json.loads(MASKS.read_text(encoding="utf-8")) if MASKS.is_file() else {}
    table = {text: kept.get(text) for text in sorted(masks.all_of_them())}
    for text, name in table.items():
        now = [case for case, each in found.items() if each.get(text)]
        if (name is None or name in found) and name not in now:
            table[text] = now[0] if now else None
    MASKS.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


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
    names = sys.argv[1:] or list(CASES)
    renew(COUNTS, {name: measured(emulator, name) for name in names if name in SHAPES})
    renew(BREAKS, {name: found_breaks(emulator, name) for name in names if name in SHAPES})
    renew_masks({name: found_masks(emulator, name) for name in names if name not in cases.OF_CUDA})


if __name__ == "__main__":
    main()
