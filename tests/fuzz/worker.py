"""The process in which cases run: reads a case a line, answers a line each, and may crash on any of them.

It gets each case before it runs it, so that the runner knows which one killed it.
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

from tests.fuzz import judge, place
from tests.fuzz.choices import Choices

ADDRESSES = 12 << 30  # beyond what is mapped at first: what would take the machine's memory is refused to it


def _status(name: str) -> int:
    """A line of /proc/self/status, in bytes; 0 where there is none."""
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def run_case(target: str, seed: int | None, draws: list[int], memory: int) -> dict[str, Any]:
    """Runs one case: {} if all is well, else the finding, with its random choices; memory: bytes that it may add."""
    rng = Choices(seed, draws)
    actual: dict[str, Any] = {}
    attack = importlib.import_module(f"tests.fuzz.targets.{target}")
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    before = _status("VmRSS")
    try:
        attack.case(rng)
    except BaseException as error:  # noqa: BLE001 - whatever a case raises is what is looked for
        actual = judge.told(error)
    more = _status("VmHWM") - before
    if not actual and more > memory:
        actual = {"kind": "memory", "where": target, "text": f"the case added {more >> 20} MiB"}
    return {**actual, "drawn": rng.drawn} if actual else {}


def prepare() -> None:
    """Memory that is bounded, and a traceback if the process crashes or hangs."""
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    if "san" not in os.environ.get("LD_PRELOAD", ""):  # a sanitizer's shadow takes terabytes of addresses
        most = _status("VmSize") + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serves until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    prepare()
    print(json.dumps({"root": str(place.root())}), file=answers)
    for line in sys.stdin:
        print(json.dumps(run_case(**json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
