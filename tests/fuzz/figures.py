"""Figures of runs in benchmarks/results/fuzz.json: one entry a run, written by the run itself."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import machine


def add(path: pathlib.Path, cases: Mapping[str, int], findings: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Add a run to the file: the cases of each target, and the findings."""
    content = (
        json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"case": "fuzz", "rows": [], "runs": []}
    )
    about = machine.describe("make fuzz")
    content["runs"].append(
        {**about, "seconds": round(seconds), "cases": dict(sorted(cases.items())), "findings": list(findings)}
    )
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
