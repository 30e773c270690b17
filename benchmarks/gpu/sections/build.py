"""Is the C++ extension there, for this Python and torch? If not it is built, in place, by the tools beside Python."""

import sys
import time

from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, row
from elmo_fast.ops import _native

CHECK = "import sys; from elmo_fast.ops import _native; sys.exit(_native.WHY_NOT)"


def run(session: Session) -> None:
    """Row "s" that the build took; a failure when the extension cannot be loaded after it."""
    start, missing = time.monotonic(), _native.WHY_NOT or ""
    if not session.settings.rehearsal:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        status, said = session.run(command, "build", ELMO_FAST_REQUIRE_NATIVE="1")
        if status != 0:
            session.fail("build_ext", said[-1500:])
    taken = time.monotonic() - start
    if not session.settings.rehearsal:  # this process imported the package before the extension was there
        status, said = session.run([sys.executable, "-c", CHECK], "extension")
        missing = said.strip() if status != 0 else ""
    session.note("extension", missing or "loads")
    if missing:
        session.fail("extension", missing)
    session.record(row("build of the extension", "setup.py", [taken], threads=1, unit="s", kind=GpuRow))
