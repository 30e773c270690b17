"""The tests of ops and modules that have a GPU backend as their parameter, here on the GPU; one process per file.

A process per file: a kernel that reads where it must not ends the device's context, and with it every test behind it.
What only the CPU concerns is left out for time. Other people's announcements (deprecations in libraries that are newer
or older than ours) are no failures here; a silent fall to a slower backend is.
"""

import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

from benchmarks.gpu.session import Session
from benchmarks.machine import ROOT
from benchmarks.results import GpuRow, row

FOLDERS = ("tests/ops", "tests/modules", "tests/pretrain")
CHOSEN = "triton or cuda"
WARNINGS = ("default::DeprecationWarning", "default::PendingDeprecationWarning", "default::FutureWarning",
            "default::UserWarning", "error::elmo_fast.errors.PerformanceWarning")  # fmt: skip
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error|xfailed)")
NOTHING = 5  # pytest's status when no test was chosen


class Outcome(NamedTuple):
    """What a file's tests came to."""

    file: str
    status: int | None
    counts: dict[str, int]
    failures: list[str]
    tail: str


def run(session: Session) -> None:
    """Rows: tests passed per file; every failed test is a failure of this section."""
    files = [("tests/ops/test_scalar_mix.py", "eps")] if session.quick else chosen_files()
    workers = 1 if session.quick else max(1, min(6, (os.cpu_count() or 2) // 2))
    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(tested, session, *pair) for pair in files]):
            keep(session, done.result())
    passed = sum(int(each.median) for each in session.report.rows)
    session.note("passed", passed)
    if not passed:
        session.fail("tests", "not one test ran on the GPU")


def chosen_files() -> list[tuple[str, str]]:
    """The files that name a GPU's backend, ops first, with the tests to choose."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("test_*.py"))]
    named = [path for path in paths if re.search(r"triton|cuda|backends\(", path.read_text(encoding="utf-8"))]
    return [(str(path.relative_to(ROOT)), CHOSEN) for path in named]


def tested(session: Session, file: str, chosen: str) -> Outcome:
    """Runs the chosen tests of one file, within the section's time."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=short", "-k", chosen, file]
    for each in WARNINGS:
        command += ["-W", each]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=max(1.0, session.left())
        )
        status, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as cut:
        status, said = None, (cut.stdout or b"").decode(errors="replace")
    log = session.settings.out / "gpu_logs" / f"{pathlib.Path(file).stem}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(said, encoding="utf-8")
    return outcome_of(file, status, said)


def outcome_of(file: str, status: int | None, said: str) -> Outcome:
    """What pytest's words come to."""
    lines = said.splitlines()
    last = next((line for line in reversed(lines) if COUNTS.search(line)), "")
    counts = {name: int(number) for number, name in COUNTS.findall(last)}
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return Outcome(file, status, counts, failures, "\n".join(lines[-5:]))


def keep(session: Session, outcome: Outcome) -> None:
    """Its row, note and failures."""
    if outcome.status == NOTHING:
        session.note(outcome.file, "no test for the GPU")
        return
    for failure in outcome.failures:
        session.fail(outcome.file, failure)
    if outcome.status is None:
        session.fail(outcome.file, "cut: the section's time was over")
    elif outcome.status and not outcome.failures:
        session.fail(outcome.file, f"pytest ended with status {outcome.status}: {outcome.tail}")
    said = ", ".join(f"{number} {name}" for name, number in outcome.counts.items())
    session.note(outcome.file, said or "cut")
    new = row(outcome.file, "pytest", [outcome.counts.get("passed", 0)], threads=1, unit="tests passed", kind=GpuRow)
    session.record(new)
    print(f"  {outcome.file}: {said}", flush=True)
