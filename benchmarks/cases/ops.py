"""Every op, native and reference in turn: runs benchmarks/bench_ops.py with pytest-benchmark and gathers its rows."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import defaultdict

import torch

from benchmarks.cases import Settings
from benchmarks.machine import ROOT
from benchmarks.results import Report, faster, row
from elmo_fast.ops import explain


def run(settings: Settings, only: str = "") -> Report:
    """Rows "ms" per op, precision and backend; the samples of all turns are pooled.

    only: the ops to measure, as pytest's -k takes them.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ops.json"
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environment = {**outside, "OMP_NUM_THREADS": "1", "ELMO_FAST_BENCH_QUICK": str(int(settings.quick))}
        command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
        command += ["-k", only] * bool(only)
        command += ["benchmarks/bench_ops.py", "--benchmark-only", f"--benchmark-json={path}", "--benchmark-disable-gc"]
        subprocess.run([*command, "--benchmark-columns=median,iqr,rounds"], cwd=ROOT, env=environment, check=True)
        measured = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in measured:
        about = each["extra_info"]
        samples[about["variant"], about["backend"]] += [1000 * second for second in each["stats"]["data"]]
    report = Report(notes={"shapes": "the original architecture's; see benchmarks/bench_ops.py"})
    for variant in dict.fromkeys(variant for variant, _ in samples):
        sides = [side for side in ("native", "reference") if (variant, side) in samples]
        rows = [row(variant, side, samples[variant, side], threads=1, unit="ms") for side in sides]
        if len(rows) == 2:
            faster(*rows)
        else:
            op, precision, _ = variant.split(", ")
            refusals = explain(op, torch.device("cpu"), torch.float32, precision).refusals
            report.skipped.append(f"{variant}, native: {refusals.get('native', 'there is none')}")
        report.rows += rows
    return report
