"""metrics.jsonl, one row per line: read back, and cut where a run resumes. Needs no torch."""

import json
import os
import pathlib
import warnings
from dataclasses import dataclass
from typing import Any

from elmo_fast._io.atomic_file import atomic_file
from elmo_fast._runtime.progress import METRICS_FILE
from elmo_fast.errors import ElmoFastError

Row = dict[str, Any]


def _rows(path: pathlib.Path) -> list[tuple[bytes, Row | None]]:
    """Return bytes and row of each line that is not blank; None for the row of a line that is not whole."""
    return [(line, _whole_row(line)) for line in path.read_bytes().split(b"\n") if line.strip()]


def _whole_row(line: bytes) -> Row | None:
    """Return the row of a line; None if it is not JSON, or lacks a number that readers need."""
    try:
        row: Row = json.loads(line.decode("utf-8"))
        event = row.get("event")
        numbers = [row[name] for name in ("step", "words")[: 1 if event in ("resume", "checkpoint") else 2]]
    except (ValueError, RecursionError, AttributeError, KeyError):
        return None
    whole = isinstance(event, str | None) and all(isinstance(each, int | float) for each in numbers)
    return row if whole else None


def keep_until(path: pathlib.Path, step: int, last: dict[str | None, int]) -> pathlib.Path | None:
    """Take out the rows after `step`, or after the last step of their event, and a last row that was cut off.

    A file with any other damage is first copied, behind copies of earlier ones; return where.
    """
    kept, aside = list[bytes](), None
    cut, rows = not path.read_bytes().endswith(b"\n"), _rows(path)
    for number, (line, row) in enumerate(rows, start=1):
        if row is not None and row["step"] <= min(step, last.get(row.get("event"), step)):
            kept.append(line + b"\n")
        # The last line, when the run was killed while it wrote it, is no damage; its step comes again.
        elif row is None and not (cut and number == len(rows)):
            aside = path.with_name(f"{path.stem}.damaged{path.suffix}")
    if aside is not None:
        before = aside.read_bytes() if aside.exists() else b""
        with atomic_file(aside) as new:
            new.write_bytes(before + path.read_bytes())
    with atomic_file(path) as new:
        new.write_bytes(b"".join(kept))
    return aside


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
        """(words, values) of the reports that have `name`, but for a last one on few steps, which scatters."""
        rows = [row for row in self.steps if row.get(name) is not None]
        if len(rows) > 1:
            begin, end, last = [0, *(row["step"] for row in rows)][-3:]
            rows = rows[:-1] if 2 * (last - end) < end - begin else rows
        return [row["words"] for row in rows], [row[name] for row in rows]

    def until(self, step: int) -> "Metrics":
        """Return the rows up to a step, for a model that was saved there."""
        steps, heldout = ([row for row in rows if row["step"] <= step] for rows in (self.steps, self.heldout))
        return Metrics(steps, heldout, self.restarts)


def read_metrics(folder: str | os.PathLike[str]) -> Metrics:
    """Return the rows of the run in `folder`; a line that is not a whole row is left out with a warning.

    Raises ElmoFastError when there is no metrics.jsonl.
    """
    path = pathlib.Path(folder) / METRICS_FILE
    if not path.is_file():
        raise ElmoFastError(f"{folder} is not the folder of a run: it has no {METRICS_FILE}")
    steps: list[Row] = []
    heldout: list[Row] = []
    restarts: list[float] = []
    rows = [row for _, row in _rows(path)]
    for row in filter(None, rows):
        event = row.get("event")
        if event == "resume":
            steps = [one for one in steps if one["step"] <= row["step"]]
            heldout = [one for one in heldout if one["step"] <= row["step"]]
            restarts.append(steps[-1]["words"] / steps[-1]["step"] * row["step"] if steps else 0.0)
        elif event == "heldout":
            heldout.append(row)
        elif event is None:
            steps.append(row)
    if left_out := rows.count(None):
        warnings.warn(
            f"{path}: left out {left_out:,} lines that are no whole rows, as a killed run leaves", stacklevel=2
        )
    return Metrics(steps, heldout, restarts)
