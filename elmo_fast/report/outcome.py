"""The results of all runs by cell: scores over the seeds, learned weights of the layers."""

from typing import Any

from elmo_fast.report.plan import Cell
from elmo_fast.report.runs import Results
from elmo_fast.report.statistics import Spread, spread


class Outcome:
    """Cells and the results of their runs.

    cells: from `plan.cells`; results: from `runs.run_all`; seeds: runs of each cell.
    """

    def __init__(self, cells: list[Cell], results: Results, seeds: int) -> None:
        self.cells, self.results, self.seeds = cells, results, seeds

    def rows(self, experiment: str, target: str | None) -> dict[str, Spread]:
        """Label -> test scores, in the order of the plan; empty if the experiment was not requested."""
        return {
            cell.label: spread([self._result(number, seed)["test"]["f1"] for seed in range(self.seeds)])
            for number, cell in self._of(experiment, target)
        }

    def metric(self) -> str:
        """The name of the scores: for labels, F1 over all of them is the accuracy."""
        return "F1 of spans" if next(iter(self.results.values()))["test"]["spans"] else "accuracy"

    def weights(self, experiment: str, target: str | None) -> dict[str, dict[str, list[float]]]:
        """Label -> name of the mix -> the layers' softmax weights, the mean over seeds; empty without a mix."""
        found = {}
        for number, cell in self._of(experiment, target):
            runs = [self._result(number, seed)["mix_weights"] for seed in range(self.seeds)]
            if runs[0]:
                found[cell.label] = {name: _mean([run[name] for run in runs]) for name in runs[0]}
        return found

    def _of(self, experiment: str, target: str | None) -> list[tuple[int, Cell]]:
        return [
            (n, cell) for n, cell in enumerate(self.cells) if (cell.experiment, cell.target) == (experiment, target)
        ]

    def _result(self, number: int, seed: int) -> dict[str, Any]:
        return self.results[number, seed]


def _mean(lists: list[list[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*lists, strict=True)]
