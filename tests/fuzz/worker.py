"""The process in which cases run: reads the name of a target, asks for each random number, and may crash on any case.

As the runner chooses the numbers, it knows the case of a process that crashed.
"""

import faulthandler
import importlib
import json
import os
import pathlib
import resource
import signal
import sys
from typing import Any

from tests.fuzz import folders, judge
from tests.fuzz.choices import Below, Choices

ADDRESSES = 12 << 30  # bytes of address space beyond those mapped at first: an allocation of more fails at once


class Abandoned(BaseException):
    """The runner needs no more of this case."""


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes; 0 if it is missing."""
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def run_case(target: str, memory: int, below: Below) -> dict[str, Any]:
    """Run one case: {} if all is well, else the finding; memory: bytes that it may add."""
    attack = importlib.import_module(f"tests.fuzz.targets.{target}")
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    before = _status("VmRSS")
    try:
        attack.case(Choices(below))
    except Abandoned:
        return {}
    except BaseException as error:  # noqa: BLE001 - whatever a case raises is what is looked for
        return judge.finding(error)
    added = _status("VmHWM") - before
    if added > memory:
        return {"kind": "memory", "where": target, "text": f"the case added {added >> 20} MiB"}
    return {}


def prepare() -> None:
    """Bound the memory, and print a traceback if the process crashes or hangs."""
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    if "san" not in os.environ.get("LD_PRELOAD", ""):  # a sanitizer's shadow takes terabytes of addresses
        most = _status("VmSize") + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    prepare()
    print(json.dumps({"root": str(folders.root())}), file=answers)

    def below(n: int) -> int:
        print(json.dumps({"below": n}), file=answers)
        number = json.loads(sys.stdin.readline())
        if number is None:
            raise Abandoned
        return number

    for line in iter(sys.stdin.readline, ""):
        print(json.dumps({"finding": run_case(**json.loads(line), below=below)}), file=answers)


if __name__ == "__main__":
    main()
