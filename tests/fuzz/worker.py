"""The process in which cases run: reads a target and a seed, and may crash on any case."""

import faulthandler
import importlib
import json
import os
import pathlib
import random
import resource
import signal
import sys
from typing import Any

from tests.fuzz import judge

ADDRESSES = 12 << 30  # bytes of address space beyond those mapped at first: an allocation of more fails at once


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes; 0 if it is missing."""
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def run_case(target: str, seed: int, memory: int, seconds: float) -> dict[str, Any]:
    """Run one case: {} if all is well, else the finding; memory: bytes that it may add; seconds: of the processor."""
    attack = importlib.import_module(f"tests.fuzz.targets.{target}")
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    before = _status("VmRSS")
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        attack.case(random.Random(seed))
    except BaseException as error:  # noqa: BLE001 - whatever a case raises is what is looked for
        return judge.finding(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    added = _status("VmHWM") - before
    if added > memory:
        return {"kind": "memory", "where": target, "text": f"the case added {added >> 20} MiB"}
    return {}


def main() -> None:
    """Serve until the input ends, with a bound on memory; a crash or a hang prints a traceback and ends the process."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGPROF, all_threads=False, chain=True)
    if "san" not in os.environ.get("LD_PRELOAD", ""):  # a sanitizer's shadow takes terabytes of addresses
        most = _status("VmSize") + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(run_case(**json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
