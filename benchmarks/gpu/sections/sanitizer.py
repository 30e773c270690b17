"""compute-sanitizer over every GPU kernel at small sizes: memcheck for all, racecheck for the hand-written CUDA C++.

Each allocation is the driver's own (no caching), so that an access past a tensor is one past an allocation. Where the
tool is absent, or refuses the device, that is said.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.gpu.session import Session
from benchmarks.machine import ROOT
from benchmarks.results import GpuRow, row

FOUND = 86  # the status the tool is told to give when it found something
REFUSALS = ("Device not supported", "not supported on this", "Unable to initialize", "no CUDA-capable device")


def run(session: Session) -> None:
    """Rows: errors found by each tool, which is 0 or a failure."""
    device = str(session.device)
    program = [sys.executable, "-m", "benchmarks.gpu.launch_all", device]
    plain = launched(session, program)
    if plain is None or plain.returncode:
        session.fail("launch_all without the tool", "cut" if plain is None else (plain.stdout + plain.stderr)[-800:])
        return
    session.note("launched", plain.stdout.strip().splitlines()[-1:])
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        session.skip("compute-sanitizer is not installed here")
        return
    for name, backend in (("memcheck", "cuda"), ("racecheck", "cuda"), ("memcheck", "triton")):  # in order of value
        if session.late(f"{name}, {backend}", 5.0):
            return
        command = [tool, "--tool", name, "--error-exitcode", str(FOUND), "--print-limit", "20", *program, backend]
        keep(session, f"{name}, {backend} kernels", launched(session, command))


def launched(session: Session, command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """The finished command, or None when the time was over."""
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": str(ROOT)}
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=max(1.0, session.left())
        )
    except subprocess.TimeoutExpired:
        return None


def keep(session: Session, what: str, done: subprocess.CompletedProcess[str] | None) -> None:
    """What the tool said."""
    if done is None:
        session.fail(what, "cut: the section's time was over")
        return
    said = done.stdout + done.stderr
    log = session.settings.out / "gpu_logs" / f"{what.split(' kernels')[0].replace(', ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(said, encoding="utf-8")
    refused = next((line for line in said.splitlines() if any(words in line for words in REFUSALS)), None)
    if refused is not None:
        session.skip(f"{what}: compute-sanitizer refuses: {refused.strip('= ')}")
        return
    if "nothing to launch" in said:
        session.skip(f"{what}: this version has none")
        return
    errors = [line.strip("= ") for line in said.splitlines() if line.startswith("=========") and " SUMMARY: " in line]
    summary = errors[-1] if errors else said.strip()[-300:]
    session.note(what, summary)
    if done.returncode:
        session.fail(what, f"status {done.returncode}: {summary}")
    else:
        session.record(row(what, "compute-sanitizer", [0], threads=1, unit="errors", kind=GpuRow))
