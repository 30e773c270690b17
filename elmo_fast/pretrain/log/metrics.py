"""Reads the metrics of a run back from metrics.jsonl. Needs no torch."""

import os
import pathlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.log.metrics_file import METRICS_FILE, Row, read_rows


@dataclass(frozen=True)
class Metrics:
    """The rows of a run in the order of its steps; rows after the step at which it was resumed do not count.

    steps: the reports on training (progress.TrainingProgress.report); heldout: events "heldout"; restarts: words seen
    where the run was resumed.
    """

    steps: list[Row]
    heldout: list[Row]
    restarts: list[float]

    def column(self, name: str) -> tuple[list[float], list[float]]:
        """(words, values) of the reports that have `name`."""
        rows = [row for row in self.steps if row.get(name) is not None]
        return [row["words"] for row in rows], [row[name] for row in rows]

    def until(self, step: int) -> "Metrics":
        """The rows up to a step, for a model that was saved there."""
        steps, heldout = ([row for row in rows if row["step"] <= step] for rows in (self.steps, self.heldout))
        return Metrics(steps, heldout, self.restarts)


def read_metrics(folder: str | os.PathLike[str]) -> Metrics:
    """The rows of the run in `folder`; a line that is not a whole row is left out with a warning.

    Raises ElmoFastError when there is no metrics.jsonl.
    """
    path = pathlib.Path(folder) / METRICS_FILE
    if not path.is_file():
        raise ElmoFastError(f"{folder} is not the folder of a run: it has no {METRICS_FILE}")
    steps: list[Row] = []
    heldout: list[Row] = []
    restarts: list[float] = []
    for row in _rows(path):
        event = row.get("event")
        if event == "resume":
            steps = [one for one in steps if one["step"] <= row["step"]]
            heldout = [one for one in heldout if one["step"] <= row["step"]]
            restarts.append(steps[-1]["words"] / steps[-1]["step"] * row["step"] if steps else 0.0)
        elif event == "heldout":
            heldout.append(row)
        elif event is None:
            steps.append(row)
    return Metrics(steps, heldout, restarts)


def _rows(path: pathlib.Path) -> Iterator[Row]:
    left_out = []
    for number, _, row in read_rows(path):
        if row is None:
            left_out.append(number)
        else:
            yield row
    if left_out:
        others = f" and {len(left_out) - 1:,} others" if len(left_out) > 1 else ""
        warnings.warn(
            f"{path}, line {left_out[0]}{others}: left out, as it is not a whole row (a run that is killed leaves such "
            "a line)",
            stacklevel=3,
        )
