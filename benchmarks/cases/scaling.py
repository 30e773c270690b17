"""A step on N processes: bytes exchanged, measured between processes on this machine; seconds predicted for GPUs.

docs/scaling.md explains the model.
"""

import json
import subprocess
import sys

from benchmarks.cases import Settings
from benchmarks.machine import ROOT
from benchmarks.results import Report, row
from benchmarks.scaling_model import MEASURED, ORIGINAL, Cluster, Shape, exchanged, step_time

GPUS = (1, 2, 4, 8, 16, 64, 256, 1024)
# What one GPU computes is not known before one has been measured: two assumptions, marked as such everywhere.
RATES = (0.6e6, 1.0e6)


def run(settings: Settings) -> Report:
    """Rows "MB" that one process sends in a step, measured and predicted; the parts of both are in the notes."""
    measured = [measure(count) for count in ((2,) if settings.quick else (2, 3, 4))]
    predicted = [step_time(ORIGINAL, Cluster(), count, rate) for rate in RATES for count in GPUS]
    report = Report(notes={"shape": MEASURED._asdict(), "measured": measured, "predicted": predicted})
    for each in measured:
        variant = f"sent by one of {each['processes']:.0f} processes in a step"
        for side, name in (("measured", "sent"), ("predicted", "predicted")):
            report.rows.append(row(variant, side, [each[name] / 1e6], threads=1, unit="MB"))
    return report


def measure(processes: int) -> dict[str, float]:
    """Bytes per step and process, sent by the worker in so many processes and predicted."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run([*command, "-m", "benchmarks.scaling_worker"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    told = json.loads(done.stdout.splitlines()[-1])
    shape = Shape(**{**MEASURED._asdict(), "dense": told["dense"]})
    model = exchanged(shape, processes, union=told["union"], longest=told["longest"])
    return {**told, "predicted": sum(model.values()), **{f"predicted_{name}": size for name, size in model.items()}}
