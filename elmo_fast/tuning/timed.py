"""Times alternatives in turn, and keeps a row of each."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from elmo_fast.tuning.clock import Clock

OURS = "elmo_fast"
# What is wrong with a call's result, in one sentence, or None.
Judge = Callable[[Any], str | None]
# By how much another choice must be faster than what the code would take: less may be noise.
MARGIN = 0.03


class Timed:
    """Rows of medians in milliseconds, as benchmarks/results.py reads them, and what was left out with the reason."""

    def __init__(self, clock: Clock, rounds: int) -> None:
        self.clock, self.rounds = clock, rounds
        self.rows: list[dict[str, Any]] = []
        self.skipped: list[str] = []

    def medians(
        self, variant: str, calls: Mapping[str, Callable[[], object]], why_wrong: Judge = lambda result: None
    ) -> dict[str, float]:
        """Milliseconds by name, each call in turn; a call that raises, or is wrong, is left out with its reason."""
        ready = {name: call for name, call in calls.items() if self._runs(f"{variant}, {name}", call, why_wrong)}
        taken: dict[str, list[float]] = {name: [] for name in ready}
        for _ in range(self.rounds):
            for name, call in ready.items():
                taken[name].append(1000 * self.clock.seconds(call))
        found = {name: statistics.median(times) for name, times in taken.items()}
        fastest = min((found[name] for name in found if not name.startswith(OURS)), default=None)
        for name, times in taken.items():
            times.sort()
            ours = name.startswith(OURS)
            row = {
                "variant": variant, "side": name, "threads": 1, "unit": "ms", "samples": len(times),
                "median": _short(found[name]), "p20": _short(times[len(times) // 5]),
                "p80": _short(times[-1 - len(times) // 5]), "ours": ours, "launched": self.clock.way,
            }  # fmt: skip
            if ours and fastest is not None:
                rival = min((each for each in found if not each.startswith(OURS)), key=found.__getitem__)
                row |= {"against": rival, "ratio": _short(fastest / found[name])}
            self.rows.append(row)
        return found

    def _runs(self, what: str, call: Callable[[], object], why_wrong: Judge) -> bool:
        """Whether a call gives right numbers: three times, so that its graph is captured, where it has one."""
        try:
            for _ in range(3):
                result = call()
            why = why_wrong(result)
        except Exception as error:  # noqa: BLE001 (whatever a side raises is what is reported of it)
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if why is not None:
            self.skipped.append(f"{what}: {why}")
        return why is None


def _short(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def fastest(times: Mapping[int, float], default: int) -> int:
    """The alternative to take: the fastest if it wins by more than MARGIN, else the default one."""
    best = min(times, key=times.__getitem__)
    return best if default not in times or times[best] < (1 - MARGIN) * times[default] else default
