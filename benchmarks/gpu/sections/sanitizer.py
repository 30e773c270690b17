"""compute-sanitizer over every GPU kernel at small sizes: memcheck for all, racecheck for the hand-written CUDA C++.

Each allocation is the driver's own (no caching), so that an access past a tensor is one past an allocation. Where the
tool is absent, or refuses the device, that is said.
"""

import shutil
import sys

from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, row

NOTHING = "nothing to launch"  # as launch_all says it
FOUND = 86  # the status the tool is told to give when it found something
REFUSALS = ("Device not supported", "not supported on this", "Unable to initialize", "no CUDA-capable device")


def run(session: Session) -> None:
    """Rows: errors found by each tool, which is 0 or a failure."""
    program = [sys.executable, "-m", "benchmarks.gpu.launch_all", str(session.device)]
    status, said = session.run(program, "launch_all", PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    if status != 0:
        session.fail("launch_all without the tool", "cut" if status is None else said[-800:])
        return
    session.note("launched", [line for line in said.splitlines() if line.startswith(("launched", NOTHING))])
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        session.skip("compute-sanitizer is not installed here")
        return
    for name, backend in (("memcheck", "cuda"), ("racecheck", "cuda"), ("memcheck", "triton")):  # in order of value
        if session.late(f"{name}, {backend}", 5.0):
            return
        command = [tool, "--tool", name, "--error-exitcode", str(FOUND), "--print-limit", "20", *program, backend]
        found = session.run(command, f"{name}-{backend}", PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        keep(session, f"{name}, {backend} kernels", *found)


def keep(session: Session, what: str, status: int | None, said: str) -> None:
    """What the tool said."""
    lines = [line.strip("= ") for line in said.splitlines()]
    refused = next((line for line in lines if any(words in line for words in REFUSALS)), None)
    if status is None:
        session.fail(what, "cut: the section's time was over")
    elif refused is not None:
        session.skip(f"{what}: compute-sanitizer refuses: {refused}")
    elif NOTHING in said:
        session.skip(f"{what}: this version has none")
    else:
        summary = next((line for line in reversed(lines) if " SUMMARY: " in line), said.strip()[-300:])
        session.note(what, summary)
        if status:
            session.fail(what, f"status {status}: {summary}")
        else:
            session.record(row(what, "compute-sanitizer", [0], threads=1, unit="errors", kind=GpuRow))
