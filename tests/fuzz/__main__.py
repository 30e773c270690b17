"""`python -m tests.fuzz`: attacks for a while, prints findings and the line that repeats each; status 1 if any."""

import argparse
import json
import pathlib
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import machine
from tests.fuzz import runner

FINDINGS = runner.ROOT / "build" / "fuzz"


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1e9, help="how long")
    parser.add_argument("--targets", nargs="*", default=runner.TARGETS, help=f"of {', '.join(runner.TARGETS)}")
    parser.add_argument("--seed", type=int, help="the same cases as a run before; default: new ones")
    parser.add_argument("--case", type=pathlib.Path, help="repeat one case: the folder of a finding")
    parser.add_argument("--folder", type=pathlib.Path, default=FINDINGS, help="folder for findings")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures; a run is added to those before")
    arguments = parser.parse_args()
    if arguments.case is not None:
        return repeat(arguments.case)
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    hunt = runner.Hunt(arguments.targets, arguments.folder, seconds=arguments.seconds, seed=seed)
    begun, stopped = time.monotonic(), ""
    try:
        for finding in hunt:
            last = finding["text"].strip().rpartition("\n")[2][:300]
            print(f"{finding['kind']} in {finding['where']}: {last}\n    make fuzz CASE={finding['case']}", flush=True)
    except KeyboardInterrupt:
        stopped = "stopped: "
    seconds = time.monotonic() - begun
    print(f"{stopped}{sum(hunt.cases.values())} cases in {seconds:.0f} s, {len(hunt.findings)} findings, seed {seed}")
    if arguments.json is not None:
        rows = [{name: each[name] for name in ("case", "kind", "where")} for each in hunt.findings.values()]
        add(arguments.json, hunt.cases, rows, seconds)
    return 1 if hunt.findings else 0


def repeat(folder: pathlib.Path) -> int:
    """Run one case in a worker and print its finding."""
    target, _, seed = folder.name.rpartition("-")
    with runner.Worker() as worker:
        actual = worker.run(target, int(seed))
    print(f"{actual['kind']} in {actual['where']}\n{actual['text']}" if actual else f"{folder}: nothing")
    return 1 if actual else 0


def add(path: pathlib.Path, cases: Mapping[str, int], findings: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Add a run to a file of figures: the cases of each target, and the findings."""
    empty: dict[str, Any] = {"case": "fuzz", "rows": [], "runs": []}
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty
    run = {**machine.describe("make fuzz"), "seconds": round(seconds), "cases": dict(sorted(cases.items()))}
    content["runs"].append(run | {"findings": list(findings)})
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
