"""`python -m tests.fuzz`: attacks for a while, prints what was found and the line that repeats it; status 1 if any."""

import argparse
import collections
import json
import pathlib
import sys
import time
from typing import Any

from tests.fuzz import runner

FINDINGS = runner.ROOT / "build" / "fuzz"


def main() -> int:
    """Reads the arguments and runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1e9, help="how long")
    parser.add_argument("--cases", type=int, default=1 << 62, help="how many cases at most")
    parser.add_argument("--targets", nargs="*", default=runner.TARGETS, help=f"of {', '.join(runner.TARGETS)}")
    parser.add_argument("--first", type=int, default=0, help="the first seed of each target")
    parser.add_argument("--case", help="one case, TARGET:SEED or the folder of a finding, in this process")
    parser.add_argument("--folder", type=pathlib.Path, default=FINDINGS, help="where findings are kept")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures; those that are there are added to")
    arguments = parser.parse_args()
    if arguments.case is not None:
        return repeat(arguments.case)
    counts: collections.Counter[str] = collections.Counter()
    findings: dict[tuple[str, str, str], dict[str, Any]] = {}
    begun, stopped = time.monotonic(), ""
    try:
        for target, seed, actual in runner.attack(
            arguments.targets, arguments.folder, seconds=arguments.seconds, cases=arguments.cases, first=arguments.first
        ):
            counts[target] += 1
            if not actual:
                continue
            alike = (target, actual["kind"], actual["where"])
            if alike not in findings:
                identity = {name: actual[name] for name in ("kind", "where")}
                findings[alike] = {"case": f"{target}:{seed}", **identity, "cases": 0}
                last = actual["text"].strip().rpartition("\n")[2][:300]
                print(f"{actual['kind']} in {actual['where']}: {last}\n    make fuzz CASE={target}:{seed}", flush=True)
            findings[alike]["cases"] += 1
    except KeyboardInterrupt:
        stopped = "stopped: "
    seconds = time.monotonic() - begun
    print(f"{stopped}{sum(counts.values())} cases in {seconds:.0f} s, {len(findings)} findings")
    if arguments.json is not None:
        from tests.fuzz.figures import add

        add(arguments.json, counts, list(findings.values()), seconds)
    return 1 if findings else 0


def repeat(case: str) -> int:
    """Runs one case in a worker and prints what it finds."""
    folder = pathlib.Path(case)
    with runner.Worker() as worker:
        if folder.is_dir():
            draws = json.loads((folder / "draws.json").read_text(encoding="ascii"))
            actual = worker.run(folder.name.rpartition("-")[0], None, draws)
        else:
            target, _, seed = case.rpartition(":")
            actual = worker.run(target, int(seed))
    print(f"{actual['kind']} in {actual['where']}\n{actual['text']}" if actual else f"{case}: nothing")
    return 1 if actual else 0


if __name__ == "__main__":
    sys.exit(main())
