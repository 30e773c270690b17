"""`python -m tests.torture`: kills at random, each run repeated to its end; status 1 where one ends differently."""

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
import time


def main() -> int:
    """Reads the arguments, attacks, prints the summary."""
    import torch

    from benchmarks import machine
    from tests.torture.attack import KINDS, attack

    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed, when and how often")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS), help="of work; default: all")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    about = machine.describe(f"make torture N={arguments.kills} SEED={arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        tallies, failures = attack(
            arguments.kills, arguments.seed, pathlib.Path(folder), arguments.kinds, lambda line: print(line, flush=True)
        )
    seconds = round(time.monotonic() - began)
    for each in tallies:
        print(f"{each.kind}: {each.kills} kills, {each.equal} of {each.runs} runs ended as undisturbed ones")
    print(f"{sum(each.kills for each in tallies)} kills in {seconds} s, {len(failures)} runs differ")
    if arguments.json is not None:
        rows = [dataclasses.asdict(each) for each in tallies]
        actual = {"seconds": seconds, "kinds": rows, "failures": failures}
        arguments.json.write_text(
            json.dumps({"case": "torture", **about, **actual, "rows": []}, indent=1) + "\n", encoding="utf-8"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
