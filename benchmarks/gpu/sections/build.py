"""Is the C++ extension there, for this Python and torch? If not it is built, in place, by the tools beside Python."""

import os
import subprocess
import sys
import time

from benchmarks.gpu.session import Session
from benchmarks.machine import ROOT
from benchmarks.results import GpuRow, row
from elmo_fast.ops import _native

CHECK = "from elmo_fast.ops import _native; print(_native.WHY_NOT or '')"


def run(session: Session) -> None:
    """Row "s" that the build took; a failure when the extension cannot be loaded after it."""
    start = time.monotonic()
    if not session.settings.rehearsal:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        environment = {**os.environ, "ELMO_FAST_REQUIRE_NATIVE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            session.fail("build_ext", (done.stdout + done.stderr)[-1500:])
    taken = time.monotonic() - start
    missing = _native.WHY_NOT or ""
    if not session.settings.rehearsal:  # this process imported the package before the extension was there
        said = subprocess.run([sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, text=True)
        missing = said.stdout.strip() or said.stderr.strip()
    session.note("extension", missing or "loads")
    if missing:
        session.fail("extension", missing)
    session.record(row("build of the extension", "setup.py", [taken], threads=1, unit="s", kind=GpuRow))
