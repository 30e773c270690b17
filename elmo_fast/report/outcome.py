"""The results of all runs by cell: scores over the seeds and how they compare, learned weights of the layers."""

import statistics
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from elmo_fast.report.plan import Cell


class _Scores(TypedDict):
    f1: float
    spans: bool


class RunResult(TypedDict):
    """The part of a run's results.json that is read."""

    dev: _Scores
    test: _Scores
    seconds: float
    mix_weights: dict[str, list[float]]


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


class Outcome(NamedTuple):
    """Cells and the results of their runs.

    cells: from `plan.cells`; results: of each cell, one per seed, from `training.run_all`.
    """

    cells: list[Cell]
    results: list[list[RunResult]]

    def rows(self, experiment: str, target: str | None) -> dict[str, Spread]:
        """Label -> test scores, in the order of the plan; empty if the experiment was not requested."""
        return {cell.label: _test_scores(runs) for cell, runs in self._of(experiment, target)}

    def curves(self, target: str | None) -> dict[str, dict[float, Spread]]:
        """The curves of "baseline" and "+ ELMo": share of the training data, ascending -> test scores."""
        found: dict[str, dict[float, Spread]] = {"baseline": {}, "+ ELMo": {}}
        for cell, runs in sorted(self._of("share", target), key=lambda item: item[0].changes["train_share"]):
            label = "baseline" if cell.changes["elmo"] == "none" else "+ ELMo"
            found[label][cell.changes["train_share"]] = _test_scores(runs)
        return found

    def metric(self) -> str:
        """The name of the scores: for labels, F1 over all of them is the accuracy."""
        return "F1 of spans" if self.results[0][0]["test"]["spans"] else "accuracy"

    def weights(self, experiment: str, target: str | None) -> dict[str, dict[str, list[float]]]:
        """Label -> name of the mix -> the layers' softmax weights, the mean over seeds; empty without a mix."""
        mixes = {cell.label: [run["mix_weights"] for run in runs] for cell, runs in self._of(experiment, target)}
        return {
            label: {name: _mean([run[name] for run in runs]) for name in runs[0]}
            for label, runs in mixes.items()
            if runs[0]
        }

    def _of(self, experiment: str, target: str | None) -> Iterator[tuple[Cell, list[RunResult]]]:
        for cell, runs in zip(self.cells, self.results, strict=True):
            if (cell.experiment, cell.target) == (experiment, target):
                yield cell, runs


def _test_scores(runs: list[RunResult]) -> Spread:
    return spread([run["test"]["f1"] for run in runs])


def _mean(lists: list[list[float]]) -> list[float]:
    return [statistics.fmean(values) for values in zip(*lists, strict=True)]
