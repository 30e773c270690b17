"""Kills, and what came of them."""

import dataclasses
import pathlib
import random
import time
from collections.abc import Callable, Sequence

from tests.torture.children import ended, killed_after, started
from tests.torture.works import (
    UNDISTURBED,
    Embedding,
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
    "resuming": Resuming,
    "changing processes": Joined,
    "preparing": Preparing,
    "embedding": Embedding,
    "sharing": Sharing,
    "task": Task,
}

# Moments at which a save touches the disk, of a few saves.
MOMENTS = 80
MOST_KILLS_OF_A_RUN = 6


@dataclasses.dataclass
class Tally:
    """Of one kind: kills that fell, runs that ended after them, and those that ended as the undisturbed one."""

    kind: str
    kills: int = 0
    runs: int = 0
    equal: int = 0


class Attack:
    """A kind of work in a folder, and its runs.

    say: takes a line per kill.
    """

    def __init__(self, kind: str, folder: pathlib.Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self.work, self.tally = KINDS[kind](folder), Tally(kind)
        self.log, self.chance, self.say = folder / "log.txt", chance, say
        self.failures: list[str] = []
        if isinstance(self.work, Joined):
            self.work.together = self._together
        # In this process first, so that its children find everything imported and reach their work at once.
        self.work.run("warm", 1)
        self.seconds = {}
        for name, count in (("warm too", max(self.work.counts)), (UNDISTURBED, 1)):
            began = time.monotonic()
            assert ended(self._started(name, count), self.log)
            self.seconds[count] = time.monotonic() - began

    def _started(self, name: str, count: int) -> list[int]:
        return started(lambda: self.work.run(name, count), count, self.log)

    def _together(self, name: str, count: int, steps: int) -> None:
        work = self.work
        assert isinstance(work, Joined)
        assert ended(started(lambda: work.run(name, count, steps), count, self.log), self.log)

    def run(self, kills: int) -> int:
        """Starts one run, kills it `kills` times at most, lets it end and compares; how often it was killed."""
        name, sittings = f"run-{self.tally.runs}", list[tuple[int, int]]()
        self.tally.runs += 1
        fell, done = 0, False
        try:
            while not done:
                count = self.chance.choice(self.work.counts)
                sittings.append((self.work.step(name), count))
                done = self._sitting(name, count, kill=fell < kills)
                if not done:
                    fell += 1
                    self.tally.kills += 1
                    self._after_a_kill(name, sittings)
            wrong = self.work.differences(name, sittings)
        except Exception as error:  # noqa: BLE001 (whatever a killed run leads to is a finding)
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            self.failures.append(f"{self.tally.kind}, {name}, {fell} kills: {'; '.join(wrong)}")
            self.say(f"DIFFERS {self.failures[-1]}")
        else:
            self.tally.equal += 1
        return fell

    def _sitting(self, name: str, count: int, *, kill: bool) -> bool:
        """One start; whether it came to its end."""
        work: Work = self.work
        by_itself = isinstance(work, Saving)
        if isinstance(work, Saving):
            work.moment = self.chance.randint(1, MOMENTS) if kill else 0
        children = self._started(name, count)
        if kill and not by_itself:
            seconds = self.seconds.get(count, self.seconds[max(self.seconds)])
            killed_after(children, self.chance.uniform(0, work.share * seconds), self.chance)
        return ended(children, self.log)

    def _after_a_kill(self, name: str, sittings: Sequence[tuple[int, int]]) -> None:
        step, count = sittings[-1]
        where = f" from step {step}" if step else ""
        self.say(f"killed {self.tally.kind}, {name}{where}, {count} process{'es' * (count > 1)}")
        if wrong := self.work.whole(name):
            raise AssertionError(f"a killed run left what is not whole: {wrong}")


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
