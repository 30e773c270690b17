"""A step on N processes: bytes exchanged, measured between processes on this machine; seconds predicted for GPUs.

    python -m benchmarks.scaling measure        bytes on the wire of 2, 3 and 4 processes, beside the model's
    python -m benchmarks.scaling predict        1 to 1024 GPUs: compute, exchange, what overlaps, the bottleneck
    python -m benchmarks.scaling all            both, and the tables of docs/scaling.md

docs/scaling.md explains the model.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

from benchmarks import machine, results
from benchmarks.scaling_model import ORIGINAL, Cluster, Shape, exchanged, step_time

RESULTS = machine.ROOT / "benchmarks" / "results"
DOCUMENT = machine.ROOT / "docs" / "scaling.md"
MEASURED = Shape(rows=24, unroll_steps=5, projection=64, dense=0, words=20_000, samples=512)
GPUS = (1, 2, 4, 8, 16, 64, 256, 1024)
# What one GPU computes is not known before one has been measured: two assumptions, marked as such everywhere.
RATES = (0.6e6, 1.0e6)


def measure() -> list[dict[str, float]]:
    """Starts the worker in 2, 3 and 4 processes; bytes per step and process, sent and predicted."""
    found = []
    for count in (2, 3, 4):
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}",
            "-m", "benchmarks.scaling_worker",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        told = json.loads(done.stdout.splitlines()[-1])
        shape = Shape(**{**MEASURED._asdict(), "dense": told["dense"]})
        model = exchanged(shape, count, union=told["union"], longest=told["longest"])
        found.append({**told, "predicted": sum(model.values()), **{f"predicted_{k}": v for k, v in model.items()}})
    return found


def predict() -> list[dict[str, object]]:
    """One row per number of GPUs and assumed rate of one GPU."""
    return [step_time(ORIGINAL, Cluster(), count, rate) for rate in RATES for count in GPUS]


def measured_table(rows: list[dict[str, float]]) -> list[str]:
    """The lines of the table of measured bytes."""
    lines = [
        "| processes | dense, MB | ids, MB | rows, MB | predicted, MB | measured, MB | measured / predicted |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        parts = [row[f"predicted_{name}"] for name in ("dense", "ids", "rows")]
        shown = " | ".join(f"{value / 1e6:.3f}" for value in [*parts, row["predicted"], row["sent"]])
        lines.append(f"| {row['processes']:.0f} | {shown} | {row['sent'] / row['predicted']:.3f} |")
    return lines


def predicted_table(rows: list[dict[str, object]]) -> list[str]:
    """The lines of the table of predicted steps."""
    names = ("GPU alone, tokens/s", "GPUs", "U, M", "compute, ms", "dense, ms (hidden)", "rows, ms", "step, ms")
    names += ("tokens/s", "efficiency", "first bottleneck")
    form = "| {rate:.1f} M | {gpus} | {union:.3f} | {compute:.1f} | {dense:.1f} ({hidden:.1f}) | {rows:.1f} "
    form += "| {step:.1f} | {tokens:.1f} M | {efficiency:.0%} | {bottleneck} |"
    return [f"| {' | '.join(names)} |", "|" + " --: |" * 9 + " :-- |", *(form.format(**row) for row in rows)]


def save(measured: list[dict[str, float]], predicted: list[dict[str, object]]) -> None:
    """Writes the result file: a row per number of processes and side, the parts of both in its notes."""
    rows = []
    for each in measured:
        variant = f"sent by one of {each['processes']:.0f} processes in a step"
        for side, name in (("measured", "sent"), ("predicted", "predicted")):
            rows.append(results.row(variant, side, [each[name] / 1e6], threads=1, unit="MB"))
    notes = {"shape": MEASURED._asdict(), "measured": measured, "predicted": predicted}
    about = {**machine.describe("python -m benchmarks.scaling all"), "quick": False}
    results.save(RESULTS, "scaling", results.Report(rows=rows, notes=notes), about)


def write(about: dict[str, Any]) -> None:
    """Writes the tables of the document between their markers."""
    text = DOCUMENT.read_text(encoding="utf-8")
    tables = {"measured": measured_table(about["measured"]), "predicted": predicted_table(about["predicted"])}
    for name, lines in tables.items():
        begin, end = f"<!-- scaling:{name} -->\n", f"<!-- /scaling:{name} -->"
        text = text[: text.index(begin) + len(begin)] + "\n".join(lines) + "\n" + text[text.index(end) :]
    DOCUMENT.write_text(text, encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    """Measures, predicts, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "predict", "all"])
    what = parser.parse_args(words).what
    measured = measure() if what != "predict" else []
    predicted = predict() if what != "measure" else []
    for lines in (measured and measured_table(measured), predicted and predicted_table(predicted)):
        print("\n".join(lines))
    if what == "all":
        save(measured, predicted)
        write({"measured": measured, "predicted": predicted})
    return 0


if __name__ == "__main__":
    sys.exit(main())
