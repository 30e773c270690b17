"""metrics.jsonl, one row per line: a run appends to it, others read it back. Needs no torch."""

import errno
import json
import os
import pathlib
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elmo_fast._io.atomic_file import atomic_file
from elmo_fast._runtime.progress import METRICS_FILE
from elmo_fast.errors import ElmoFastError

Row = dict[str, Any]


class MetricsFile:
    """Appends to metrics.jsonl: one JSON object per line, unbuffered.

    step: of the checkpoint that the run resumes from: rows of later steps, which will be written again, are removed,
    as is a row that was cut off at the end; unreported: steps before it that no report has averaged, whose reports
    come again too; evaluated: step of the newest evaluation that the checkpoint knows, None: all of those in the file;
    later ones come again.

    set_aside: where a damaged file was put as it was, while its whole rows stay.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        step: int | None = None,
        unreported: int = 0,
        evaluated: int | None = None,
    ) -> None:
        path = pathlib.Path(path)
        self.set_aside: pathlib.Path | None = None
        if step is not None and path.exists():
            self.set_aside = _keep_until(
                path, step, {None: step - unreported, "heldout": step if evaluated is None else evaluated}
            )
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._cut = False

    def __enter__(self) -> "MetricsFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def write(self, **row: Any) -> None:
        """Append one row; OSError where the disk does not take it whole."""
        line = ("\n" * self._cut + json.dumps(row) + "\n").encode()
        self._cut = True
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        self._cut = False


def read_rows(path: pathlib.Path) -> Iterator[tuple[int, bytes, Row | None]]:
    """Yield number, bytes and row of each line that is not blank.

    None for the row of a line that is not a whole one.
    """
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            yield number, line, _whole_row(line)


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


def _keep_until(path: pathlib.Path, step: int, last: dict[str | None, int]) -> pathlib.Path | None:
    """Take out the rows after `step`, or after the last step of their event; where a damaged file was put as it was."""
    rows, damaged = [], False
    cut = not path.read_bytes().endswith(b"\n")
    lines = list(read_rows(path))
    for number, (_, line, row) in enumerate(lines, start=1):
        if row is None:
            # The last line, when the run was killed while it wrote it; its step comes again.
            damaged = damaged or not (cut and number == len(lines))
        elif row["step"] <= min(step, last.get(row.get("event"), step)):
            rows.append(line + b"\n")
    aside = None
    if damaged:
        marks = ["", *(f"-{n}" for n in range(2, 100))]
        names = (path.with_name(f"{path.stem}.damaged{mark}{path.suffix}") for mark in marks)
        aside = next(name for name in names if not name.exists())
        with atomic_file(aside) as new:
            shutil.copyfile(path, new)
    with atomic_file(path) as new:
        new.write_bytes(b"".join(rows))
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
    left_out: list[int] = []
    for number, _, row in read_rows(path):
        if row is None:
            left_out.append(number)
            continue
        event = row.get("event")
        if event == "resume":
            steps = [one for one in steps if one["step"] <= row["step"]]
            heldout = [one for one in heldout if one["step"] <= row["step"]]
            restarts.append(steps[-1]["words"] / steps[-1]["step"] * row["step"] if steps else 0.0)
        elif event == "heldout":
            heldout.append(row)
        elif event is None:
            steps.append(row)
    if left_out:
        others = f" and {len(left_out) - 1:,} others" if len(left_out) > 1 else ""
        warnings.warn(
            f"{path}, line {left_out[0]}{others}: left out, as it is not a whole row (a run that is killed leaves such "
            "a line)",
            stacklevel=2,
        )
    return Metrics(steps, heldout, restarts)
