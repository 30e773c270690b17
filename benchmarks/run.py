"""Runs cases and writes their results: python -m benchmarks.run [--case NAME ...] [--quick] (`make bench`: all)."""

import argparse
import importlib
import os
import pathlib
import sys
import time

from benchmarks import machine, results, table
from benchmarks.cases import BY_CPU, CASES, Settings

RESULTS = machine.ROOT / "benchmarks" / "results"
QUICK_RESULTS = machine.ROOT / "build" / "quick-benchmarks"


def arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line's arguments."""
    listing = "\n".join(f"  {name:16}{what}" for name, what in CASES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=f"Runs benchmarks; writes results and the tables of README.md and docs/.\n\ncases:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--case", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME", help="default: all"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"small sizes, few rounds, to see that it runs; results go to {QUICK_RESULTS.relative_to(machine.ROOT)}",
    )
    parser.add_argument(
        "--text",
        type=pathlib.Path,
        help="one sentence per line, words separated by spaces; default: see benchmarks/texts.py",
    )
    parser.add_argument(
        "--peer-python",
        default=os.environ.get("ELMO_FAST_PEER_PYTHON"),
        help="the Python that has AllenNLP 2.10.1; default: $ELMO_FAST_PEER_PYTHON; without it that side is skipped",
    )
    parser.add_argument(
        "--out", type=pathlib.Path, help=f"folder of the results; default: {RESULTS.relative_to(machine.ROOT)}"
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Runs the cases one after another; a case that fails stops the run with its traceback."""
    given = arguments(words)
    machine.hold_peers()
    settings = Settings(given.quick, given.text, given.peer_python)
    folder = given.out or (QUICK_RESULTS if given.quick else RESULTS)
    for case in given.case:
        print(f"{case}: {CASES[case]}", flush=True)
        about = {**machine.describe(f"python -m benchmarks.run --case {case}"), "quick": given.quick}
        start = time.monotonic()
        report = importlib.import_module(f"benchmarks.cases.{case}").run(settings)
        about["seconds"] = round(time.monotonic() - start)
        into = folder / machine.folder() if case in BY_CPU else folder
        path = results.save(into, case, report, about)
        for each in report.rows:
            print(f"  {each.told(aim=not given.quick)}")
        for reason in report.skipped:
            print(f"  skipped: {reason}")
        print(f"  -> {path}", flush=True)
    if folder == RESULTS:
        table.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
