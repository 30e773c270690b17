"""Rows of results and their files: benchmarks/results/<case>.json, and the same rows as <case>.csv."""

import csv
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.timing import quantile


@dataclasses.dataclass
class Row:
    """One side of one comparison.

    variant: what was done. side: who did it. unit: of median, p20, p80 ("tokens/s": more is better; "ms": less is).
    ratio: how many times faster than the side `against`, from the two medians. goal: the ratio aimed at, if one was.
    error: max |difference| to what `error_to` names.
    """

    variant: str
    side: str
    threads: int
    unit: str
    samples: int
    median: float
    p20: float
    p80: float
    against: str | None = None
    ratio: float | None = None
    goal: float | None = None
    error: float | None = None
    error_to: str | None = None


@dataclasses.dataclass
class Report:
    """What a case gives back: its rows, what the reader must know (`notes`), and what could not be run (`skipped`)."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    skipped: list[str] = dataclasses.field(default_factory=list)


def row(variant: str, side: str, values: Sequence[float], *, threads: int, unit: str, **more: Any) -> Row:
    """A Row from the values that were taken."""
    middle, low, high = (significant(quantile(values, share)) for share in (0.5, 0.2, 0.8))
    return Row(variant, side, threads, unit, len(values), middle, low, high, **more)


def faster(ours: Row, theirs: Row, goal: float | None = None) -> None:
    """Writes into `ours` how many times faster it is than `theirs`."""
    ours.against, ours.goal = theirs.side, goal
    more_is_better = "/" in ours.unit
    ours.ratio = significant(ours.median / theirs.median if more_is_better else theirs.median / ours.median)


def significant(value: float, digits: int = 4) -> float:
    """`value` with so many significant digits: more would be noise in a file that people compare."""
    return float(f"{value:.{digits}g}")


def save(folder: pathlib.Path, case: str, report: Report, about: dict[str, Any]) -> pathlib.Path:
    """Writes <case>.json and <case>.csv to `folder` and returns the first."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [dataclasses.asdict(each) for each in report.rows]
    content = {"case": case, **about, "notes": report.notes, "skipped": report.skipped, "rows": rows}
    path = folder / f"{case}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    same = {
        "case": case,
        "date": about["date"],
        "commit": about["commit"],
        "cpu": about["machine"]["cpu"],
        "flags": " ".join(about["machine"]["flags"]),
        "cores": about["machine"]["cores"],
        "python": about["versions"]["python"],
        "torch": about["versions"]["torch"],
    }
    with (folder / f"{case}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*same, *(field.name for field in dataclasses.fields(Row))], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**same, **each} for each in rows)
    return path


def load(folder: pathlib.Path, case: str) -> dict[str, Any] | None:
    """The content of <case>.json with `rows` as Rows, or None where the case was never run."""
    path = folder / f"{case}.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    content["rows"] = [Row(**each) for each in content["rows"]]
    return content
