"""The tests of ops and modules that have a GPU backend as their parameter, here on the GPU; one process per file.

A process per file: a kernel that reads where it must not ends the device's context, and with it every test behind it.
What only the CPU concerns is left out for time. Other people's announcements (deprecations in libraries that are newer
or older than ours) are no failures here; a silent fall to a slower backend is.
"""

import os
import pathlib
import re
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.gpu.session import Session
from benchmarks.machine import ROOT
from benchmarks.results import GpuRow, row

FOLDERS = ("tests/ops", "tests/modules", "tests/pretrain")
CHOSEN = "triton or cuda"
WARNINGS = ("default::DeprecationWarning", "default::PendingDeprecationWarning", "default::FutureWarning",
            "default::UserWarning", "error::elmo_fast.errors.PerformanceWarning")  # fmt: skip
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error|xfailed)")
NOTHING = 5  # pytest's status when no test was chosen


def run(session: Session) -> None:
    """Rows: tests passed per file; every failed test is a failure of this section."""
    files = [("tests/ops/test_scalar_mix.py", "eps")] if session.quick else chosen_files()
    workers = 1 if session.quick else max(1, min(6, (os.cpu_count() or 2) // 2))
    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(tested, session, *pair) for pair in files]):
            keep(session, *done.result())
    passed = sum(int(each.median) for each in session.report.rows)
    session.note("passed", passed)
    if not passed:
        session.fail("tests", "not one test ran on the GPU")


def chosen_files() -> list[tuple[str, str]]:
    """The files that name a GPU's backend, ops first, with the tests to choose."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("test_*.py"))]
    named = [path for path in paths if re.search(r"triton|cuda|backends\(", path.read_text(encoding="utf-8"))]
    return [(str(path.relative_to(ROOT)), CHOSEN) for path in named]


def tested(session: Session, file: str, chosen: str) -> tuple[str, int | None, str]:
    """Runs the chosen tests of one file, within the section's time: (file, status, what pytest said)."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=short", "-k", chosen, file]
    for each in WARNINGS:
        command += ["-W", each]
    return file, *session.run(command, pathlib.Path(file).stem, CUBLAS_WORKSPACE_CONFIG=":4096:8")


def keep(session: Session, file: str, status: int | None, said: str) -> None:
    """The row, note and failures of one file's tests."""
    if status == NOTHING:
        session.note(file, "no test for the GPU")
        return
    lines = said.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    for failure in failures:
        session.fail(file, failure)
    if status is None:
        session.fail(file, "cut: the section's time was over")
    elif status and not failures:
        session.fail(file, f"pytest ended with status {status}: {' '.join(lines[-5:])}")
    counts = COUNTS.findall(next((line for line in reversed(lines) if COUNTS.search(line)), ""))
    told = ", ".join(f"{number} {name}" for number, name in counts)
    session.note(file, told or "cut")
    passed = next((int(number) for number, name in counts if name == "passed"), 0)
    session.record(row(file, "pytest", [passed], threads=1, unit="tests passed", kind=GpuRow))
    print(f"  {file}: {told}", flush=True)
