"""python -m benchmarks.gpu [--section NAME ...] [--budget SECONDS] [--out DIR] [--quick] [--device cpu]

Each section runs in a process of its own: one that hangs is cut, one that fails, or takes the device's context with
it, leaves the others alone. Without a GPU (`--device cpu`, with `--quick`) everything runs in this process at toy sizes
by the host's clock: a rehearsal, whose figures mean nothing and are kept apart. Ends with status 1 if anything failed.
"""

import argparse
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

from benchmarks import machine, results, table
from benchmarks.gpu.plan import ORDER, SECTIONS, TOTAL, allowed, chosen
from benchmarks.results import Report

RESULTS = machine.ROOT / "benchmarks" / "results"
REHEARSAL = machine.ROOT / "build" / "gpu-rehearsal"
GRACE = 4.0  # seconds between the end of a section's time and its being cut
NO_GPU = 3
LEAST = 8.0  # seconds with less of which a section is not started


def arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line's arguments."""
    listing = "\n".join(f"  {name:12}{plan.what}" for name, plan in SECTIONS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=f"Tests and measures on one GPU, the most valuable first.\n\nsections:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--section", nargs="+", choices=ORDER, metavar="NAME", help="default: all")
    parser.add_argument("--budget", type=float, default=TOTAL, help=f"seconds for all of it; default: {TOTAL:g}")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results; default: benchmarks/results")
    parser.add_argument("--text", type=pathlib.Path, help="one sentence per line; default: see benchmarks/texts.py")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")
    parser.add_argument("--quick", action="store_true", help="toy sizes, few rounds: to see that it runs")
    parser.add_argument("--child", choices=ORDER, help=argparse.SUPPRESS)
    parser.add_argument("--run", default=f"{time.time():.0f}", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.device.startswith("cpu") and not given.quick:
        parser.error("a rehearsal on the CPU is one of toy sizes: add --quick")
    if given.out is None:
        given.out = REHEARSAL if given.quick else RESULTS
    return given


def run_section(name: str, given: argparse.Namespace, seconds: float) -> int:
    """Runs one section in this process and writes its files; 1 if anything in it failed."""
    from benchmarks.gpu.session import Session, Settings

    about = machine.describe_gpu(command_of(name))
    if given.device.startswith("cuda") and about["gpu"]["gpu"] == "none":
        print("  torch finds no GPU here; a rehearsal without one: --device cpu --quick", flush=True)
        return NO_GPU
    session = Session(name, Settings(given.device, given.quick, given.out, given.run, given.text), about, seconds)
    start = time.monotonic()
    try:
        importlib.import_module(f"benchmarks.gpu.sections.{name}").run(session)
    except Exception as error:  # noqa: BLE001 (recorded; the other sections still run)
        traceback.print_exc()
        session.fail("the section ended", error)
    session.about["seconds"] = round(time.monotonic() - start, 1)
    session.save(complete=True)
    return int(bool(session.report.failures))


def command_of(name: str) -> str:
    """What a reader types to measure it again."""
    return f"make gpu SECTION={name}"


def child(name: str, given: argparse.Namespace, seconds: float) -> subprocess.Popen[bytes]:
    """The process that runs one section."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--child", name, "--budget", str(seconds)]
    command += ["--device", given.device, "--out", str(given.out), "--run", given.run]
    command += ["--text", str(given.text)] if given.text else []
    command += ["--quick"] if given.quick else []
    environment = {**os.environ, "PYTHONPATH": str(machine.ROOT), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    return subprocess.Popen(command, cwd=machine.ROOT, env=environment, process_group=0)


def run_apart(name: str, given: argparse.Namespace, seconds: float) -> int:
    """Runs one section in its own process and cuts it when its time is over; 1 if anything failed or it was cut."""
    process = child(name, given, seconds)
    try:
        status = process.wait(seconds + GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        mend(name, given, f"cut after {seconds + GRACE:.0f} s; what it had found is kept")
        return 1
    if status != NO_GPU and (status not in (0, 1) or found(name, given) is None):
        mend(name, given, f"its process ended with status {status}")
        return 1
    return status


def found(name: str, given: argparse.Namespace) -> dict[str, Any] | None:
    """What this run has written of a section."""
    content = results.load(given.out, f"gpu_{name}")
    return content if content is not None and content["run"] == given.run else None


def mend(name: str, given: argparse.Namespace, failure: str) -> None:
    """Adds to the files of a section that did not end by itself why it did not."""
    content = found(name, given) or machine.describe(command_of(name)) | {
        "gpu": dict.fromkeys(("gpu", "driver", "cuda"), "unknown"),
        "run": given.run,
        "quick": given.quick,
        "rehearsal": given.quick,
        "complete": False,
    }
    report = Report(**{name: content.pop(name) for name in ("rows", "notes", "skipped", "failures") if name in content})
    report.failures.append(failure)
    content.pop("case", None)
    results.save(given.out, f"gpu_{name}", report, content)
    print(f"  FAILED {failure}", flush=True)


def main(words: list[str] | None = None) -> int:
    """Runs the sections, prints the table last."""
    given = arguments(words)
    if given.child:
        return run_section(given.child, given, given.budget)
    end = time.monotonic() + given.budget
    sections, states = chosen(given.section), []
    for name in sections:
        left = end - time.monotonic() - GRACE
        if left < LEAST:
            states.append((name, 0.0, "no time was left"))
            continue
        start = time.monotonic()
        seconds = allowed(name, sections, left)
        print(f"{name}: {SECTIONS[name].what} (at most {seconds:.0f} s)", flush=True)
        status = (run_section if given.device.startswith("cpu") else run_apart)(name, given, seconds)
        states.append((name, time.monotonic() - start, "FAILED" if status else "done"))
        if status == NO_GPU:
            break
    print(f"\n{table.gpu(given.out, rehearsals=True)}\n")
    for name, seconds, state in states:
        print(f"{name:12}{seconds:6.0f} s  {state}")
    if given.out == RESULTS:
        table.write()
    return int(any(state != "done" for _, _, state in states))


if __name__ == "__main__":
    sys.exit(main())
