"""`python -m tests.torture`: kills at random, each run repeated to its end; status 1 where one ends differently."""

import argparse
import dataclasses
import json
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import torch

from benchmarks import machine
from tests.torture.children import all_finish, kill_after
from tests.torture.works import (
    UNDISTURBED,
    Embedding,
    Ending,
    Joined,
    Preparing,
    Resuming,
    Saving,
    Sharing,
    Task,
    Training,
    Work,
)

KINDS: dict[str, type[Work]] = {
    "training": Training,
    "saving": Saving,
    "ending": Ending,
    "resuming": Resuming,
    "changing processes": Joined,
    "preparing": Preparing,
    "embedding": Embedding,
    "sharing": Sharing,
    "task": Task,
}

MOST_KILLS_OF_A_RUN = 6


@dataclasses.dataclass
class Tally:
    """Counts of one kind: kills that fell, runs that ended after them, and runs that ended as the undisturbed one."""

    kind: str
    kills: int = 0
    runs: int = 0
    equal: int = 0


class Attack:
    """A kind of work in a folder, and its runs.

    say: takes a line per kill.
    """

    def __init__(self, kind: str, folder: pathlib.Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self.work, self.tally, self.chance, self.say = KINDS[kind](folder), Tally(kind), chance, say
        self.failures: list[str] = []
        # In this process first, so that its children find everything imported and reach their work at once.
        self.work.run("warm", 1)
        self.seconds = {}
        for name, count in (("warm too", max(self.work.counts)), (UNDISTURBED, 1)):
            began = time.monotonic()
            assert all_finish(self.work.start(name, count), self.work.log)
            self.seconds[count] = time.monotonic() - began

    def run(self, kills: int) -> int:
        """Starts one run, kills it `kills` times at most, lets it end and compares; how often it was killed."""
        name, sittings = f"run-{self.tally.runs}", list[tuple[int, int]]()
        self.tally.runs += 1
        fell, wrong = 0, list[str]()
        try:
            while not self._sitting(name, sittings, kill=fell < kills):
                fell += 1
                self.tally.kills += 1
                if left := self.work.whole(name):
                    wrong = [f"a killed run left what is not whole: {left}"]
                    break
            wrong = wrong or self.work.differences(name, sittings)
        except Exception as error:  # noqa: BLE001 (whatever a killed run leads to is a finding)
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            self.failures.append(f"{self.tally.kind}, {name}, {fell} kills: {'; '.join(wrong)}")
            self.say(f"DIFFERS {self.failures[-1]}")
        else:
            self.tally.equal += 1
        return fell

    def _sitting(self, name: str, sittings: list[tuple[int, int]], *, kill: bool) -> bool:
        """One start, which `sittings` gets; whether it came to its end."""
        work, step, count = self.work, self.work.step(name), self.chance.choice(self.work.counts)
        sittings.append((step, count))
        work.moment = self.chance.randint(1, work.moments) if kill else 0
        children = work.start(name, count)
        if kill and not isinstance(work, Saving):
            seconds = self.seconds.get(count, self.seconds[max(self.seconds)])
            kill_after(children, self.chance.uniform(0, work.share * seconds), self.chance)
        if done := all_finish(children, work.log):
            return done
        where = f" from step {step}" if step else ""
        self.say(f"killed {self.tally.kind}, {name}{where}, {count} process{'es' * (count > 1)}")
        return False


def attack(
    kills: int, seed: int, folder: pathlib.Path, kinds: Sequence[str], say: Callable[[str], None]
) -> tuple[list[Tally], list[str]]:
    """Kills runs of the kinds in turn until `kills` have fallen; tallies, and what differed."""
    chance, fell = random.Random(seed), 0
    attacks: dict[str, Attack] = {}

    def numbered(line: str) -> None:
        nonlocal fell
        fell += line.startswith("killed")
        say(f"{fell:>4} of {kills} | {line}")

    number = 0
    while fell < kills:
        kind = kinds[number % len(kinds)]
        if kind not in attacks:
            attacks[kind] = Attack(kind, folder / kind.replace(" ", "-"), chance, numbered)
        attacks[kind].run(min(chance.randint(1, MOST_KILLS_OF_A_RUN), kills - fell))
        number += 1
    return [each.tally for each in attacks.values()], [line for each in attacks.values() for line in each.failures]


def main() -> int:
    """Reads the arguments, attacks, prints the summary."""
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
