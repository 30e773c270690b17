"""Statistics of the runs of one cell, and comparisons between two cells."""

import statistics
from typing import NamedTuple


class Spread(NamedTuple):
    """Scores of one setting over its seeds: mean, standard deviation (n-1; 0 for one run), lowest, highest, number."""

    mean: float
    deviation: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        """In per cent: "91.23 ± 0.15"."""
        return f"{100 * self.mean:.2f} ± {100 * self.deviation:.2f}" if self.runs > 1 else f"{100 * self.mean:.2f}"


def spread(scores: list[float]) -> Spread:
    """The spread of at least one score."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return Spread(statistics.fmean(scores), deviation, min(scores), max(scores), len(scores))


def beyond_the_spread(better: Spread, worse: Spread) -> bool:
    """Whether every run of `better` scored above every run of `worse` (with more than one of each)."""
    return better.runs > 1 and worse.runs > 1 and better.low > worse.high


def comparison(one: Spread, other: Spread) -> int:
    """1 if `one` is above `other` beyond the spread, -1 if below, 0 if the seeds might explain the difference."""
    return int(beyond_the_spread(one, other)) - int(beyond_the_spread(other, one))


def error_reduction(better: Spread, worse: Spread) -> float:
    """The share of the errors of `worse` that `better` does not make: (b - w) / (1 - w); 0 if there were none."""
    return (better.mean - worse.mean) / (1 - worse.mean) if worse.mean < 1 else 0.0
