"""Draws mutants, judges each by the tests of what it changes, prints the score and lists the survivors."""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import machine
from tools.mutants import judge, trial
from tools.mutants.build import OPTIONS, ROOT, Whole
from tools.mutants.plan import Plan, record
from tools.mutants.sites import Mutation

FOREVER = float("inf")
FOLDER = ROOT / "build" / "mutants"
RESULT = ROOT / "benchmarks" / "results" / "mutants.json"


def main() -> int:
    """Status 1 where a mutant survived that equivalents.toml does not know."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--n", type=int, default=300, help="how many mutants are judged (300)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--only", default="", help="only files whose path holds this")
    parser.add_argument(
        "--first_draw", action="store_true", help="no test was written for this seed yet: add its score"
    )
    parser.add_argument("--workers", type=int, default=1, help="how many are judged at a time (1)")
    parser.add_argument("--hours", type=float, default=FOREVER, help="what is judged by then counts")
    path = {"type": pathlib.Path}
    parser.add_argument("--folder", **path, default=FOLDER, help="copies, builds, and what was found")
    parser.add_argument("--out", **path, default=RESULT, help="the file to write (benchmarks/results/mutants.json)")
    asked = parser.parse_args()
    commit = machine.commit()  # of the sources that are judged; the checkout may change meanwhile
    plan = Plan(ROOT, machine.flags())
    drawn = [each for each in plan.drawn(asked.seed) if asked.only in each.file]
    print(f"{len(drawn)} lines can be changed; building a copy in {asked.folder}", flush=True)
    asked.folder.mkdir(parents=True, exist_ok=True)
    outcomes = outcomes_of(drawn, plan, asked.folder, asked.workers, time.monotonic() + 3600 * asked.hours)
    found = score(outcomes, plan, asked.n)
    about = machine.describe(f"make mutants N={asked.n} SEED={asked.seed}") | {"commit": commit}
    content = {"case": "mutants", **about, "seed": asked.seed, "asked": asked.n, "options": OPTIONS, **found}
    content["left_out"] = sorted({each["why"] for each in plan.left_out})
    asked.out.write_text(
        json.dumps(with_first_draws(content, asked.out, asked.only, asked.first_draw), indent=1, ensure_ascii=False)
        + "\n",
        encoding="utf-8",
    )
    print(f"{found['killed']} of {found['judged']} killed, {len(found['equivalent'])} explained: {asked.out}")
    for each in found["survivors"]:
        print(f"survived: {each['file']}:{each['line']}\n    {each['before']}\n -> {each['after']}")
    return int(bool(found["survivors"]))


def with_first_draws(found: dict[str, Any], out: pathlib.Path, only: str, first: bool) -> dict[str, Any]:
    """What the result file becomes: the run's result; or, of a first draw, the file's last one and this run's score."""
    last = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    draws = [each for each in last.get("first_draws", []) if not (first and each["seed"] == found["seed"])]
    if not first:
        return {**found, "first_draws": draws}
    if not last:
        raise SystemExit(f"--first_draw adds to a result, and there is no {out}: run without it first")
    kept = ("date", "commit", "seed", "judged", "killed", "survivors")
    explained = len(found["equivalent"])
    return {**last, "first_draws": [*draws, {"only": only, **{k: found[k] for k in kept}, "explained": explained}]}


def outcomes_of(
    drawn: list[Mutation], plan: Plan, folder: pathlib.Path, workers: int, until: float
) -> Iterator[tuple[Mutation, trial.Outcome]]:
    """Each mutant in turn with what became of it, from the journal where it is known there."""
    journal = trial.Journal(folder / "journal.jsonl", plan)
    known = {each: found for each in drawn if (found := journal.known(each))}
    futures: dict[Mutation, concurrent.futures.Future[trial.Outcome]] = {}
    pool = whole = None
    try:
        for each in drawn:
            if each not in known:
                if pool is None or whole is None:
                    whole = Whole(folder / "whole")
                    pool = pool_of(workers, whole, plan, folder)
                    futures = {other: pool.submit(trial.judged, other) for other in drawn if other not in known}
                try:
                    known[each] = futures[each].result(None if until == FOREVER else max(0.0, until - time.monotonic()))
                except TimeoutError:
                    return
                journal.add(whole.tree, each, known[each])
            yield each, known[each]
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        for copy in folder.glob("worker*"):
            shutil.rmtree(copy)


def pool_of(workers: int, whole: Whole, plan: Plan, folder: pathlib.Path) -> concurrent.futures.Executor:
    """Processes with a copy each, forked when all that the tests import is there."""
    if whole.changed:
        shutil.rmtree(folder / "seconds", ignore_errors=True)
    (folder / "seconds").mkdir(exist_ok=True)
    judge.prepare()
    context = multiprocessing.get_context("fork")
    return concurrent.futures.ProcessPoolExecutor(workers, context, trial.begin, (whole, plan, folder))


def score(outcomes: Iterator[tuple[Mutation, trial.Outcome]], plan: Plan, count: int) -> dict[str, Any]:
    """Of the first `count` that are mutants at all: how many were killed, which survived, which change nothing."""
    found: dict[str, Any] = {"judged": 0, "killed": 0, "refused": 0, "same": 0, "equivalent": [], "survivors": []}
    for mutation, outcome in outcomes:
        if outcome.outcome in (trial.REFUSED, trial.SAME):
            found[outcome.outcome] += 1
            continue
        found["judged"] += 1
        known = plan.reason(mutation)
        if outcome.outcome == trial.KILLED:
            if known is not None:
                raise RuntimeError(f"equivalents.toml explains what {outcome.by} sees: {record(mutation)}")
            found["killed"] += 1
        elif known is None:
            found["survivors"].append(record(mutation))
        else:
            found["equivalent"].append(record(mutation, why=known))
        survived = "SURVIVED" if known is None else f"survived as explained: {known}"
        said = f"killed by {outcome.by}" if outcome.outcome == trial.KILLED else survived
        print(f"{found['judged']:4} {mutation.file}:{mutation.line} {outcome.seconds:.1f} s {said}", flush=True)
        if outcome.outcome == trial.SURVIVED and known is None:
            print(f"     {mutation.before.strip()}\n  -> {mutation.after.strip()}", flush=True)
        if found["judged"] == count:
            break
    return found


if __name__ == "__main__":
    sys.exit(main())
