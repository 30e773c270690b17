"""Rows of results and their files: benchmarks/results/<case>.json, and the same rows as <case>.csv."""

import csv
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.timing import in_turn, quantile


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

    def told(self, *, aim: bool = True) -> str:
        """On one line, with what was aimed at."""
        said = f"{self.variant:50} {self.side:24} {self.threads} thr {self.median:>10g} {self.unit}"
        if self.ratio is not None:
            said += f"  {self.ratio:g} x {self.against}"
            if aim and self.goal is not None:
                said += f" (aim {self.goal:g}: {'reached' if self.ratio >= self.goal else 'NOT REACHED'})"
        return said if self.error is None else f"{said}  difference {self.error:.1e} to {self.error_to}"


@dataclasses.dataclass
class GpuRow(Row):
    """One side of one comparison on a GPU.

    ours: whether the side is elmo_fast's. launched: how its kernels were ("one by one", "graph"; "host clock" in a
    rehearsal). floor: no version can be better, by `bound`; share: floor over median, as times. memory: what the call
    needs at its peak beyond what was there, MiB. aims: {"text", "reached"} of each goal.
    """

    ours: bool = False
    launched: str = ""
    floor: float | None = None
    bound: str | None = None
    share: float | None = None
    memory: float | None = None
    aims: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def told(self, *, aim: bool = True) -> str:
        """On one line, with what was aimed at."""
        said = f"{super().told(aim=aim)}  {self.launched}"
        if self.memory is not None:
            said += f"  {self.memory:g} MiB"
        if self.floor is not None and self.share is not None:
            said += f"  floor {self.floor:g} ({self.bound}), share {100 * self.share:.0f} %"
        return said + "".join(f"  [{each}]" for each in told_aims(self.aims) if aim)


@dataclasses.dataclass
class Report:
    """What a case gives back: its rows, what the reader must know (`notes`), what could not be run (`skipped`), and
    what is wrong (`failures`)."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    skipped: list[str] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)


def row(
    variant: str, side: str, values: Sequence[float], *, threads: int, unit: str, kind: type[Row] = Row, **more: Any
) -> Row:
    """A Row (or another `kind` of it) from the values that were taken."""
    middle, low, high = (significant(quantile(values, share)) for share in (0.5, 0.2, 0.8))
    return kind(variant, side, threads, unit, len(values), middle, low, high, **more)


def measure(
    variant: str,
    sides: Mapping[Any, Callable[[], float]],
    rounds: int,
    *,
    unit: str,
    threads: int = 1,
    warmup: int = 1,
    kind: type[Row] = Row,
    **more: Any,
) -> list[Any]:
    """A row for each side; what each returns is asked for in turn."""
    taken = in_turn(sides, rounds, warmup)
    return [row(variant, side, taken[side], threads=threads, unit=unit, kind=kind, **more) for side in taken]


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
    content = {"case": case, **about, "notes": report.notes, "skipped": report.skipped}
    if report.failures:
        content["failures"] = report.failures
    content["rows"] = rows
    path = folder / f"{case}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    machine, versions, card = about["machine"], about["versions"], about.get("gpu")
    same = {"case": case, "date": about["date"], "commit": about["commit"]}
    same |= {"cpu": machine["cpu"], "flags": " ".join(machine["flags"]), "cores": machine["cores"]}
    same |= {"python": versions["python"], "torch": versions["torch"]}
    if card is not None:
        same |= {name: card.get(name) for name in ("gpu", "driver", "cuda")} | {"triton": versions.get("triton")}
    kind = type(report.rows[0]) if report.rows else Row
    with (folder / f"{case}.csv").open("w", newline="", encoding="utf-8") as file:
        names = [*same, *(field.name for field in dataclasses.fields(kind))]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**same, **{name: cell(value) for name, value in each.items()}} for each in rows)
    return path


def told_aims(aims: Sequence[dict[str, Any]], no: str = "not reached") -> list[str]:
    """Each goal in words."""
    return [f"{aim['text']}: {'reached' if aim['reached'] else no}" for aim in aims]


def cell(value: Any) -> Any:
    """A value of a row as one cell of the CSV."""
    return "; ".join(told_aims(value)) if isinstance(value, list) else value


def load(folder: pathlib.Path, case: str) -> dict[str, Any] | None:
    """The content of <case>.json with `rows` as Rows (GpuRows, of a GPU), or None where the case was never run."""
    path = folder / f"{case}.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    kind = GpuRow if "gpu" in content else Row
    content["rows"] = [kind(**each) for each in content.get("rows", [])]  # tools/mutants has none
    return content


def table(align: str, *rows: Sequence[str]) -> list[str]:
    """The lines of a table in Markdown, its heading first; align: "l" or "r" for each column."""
    heading, *others = rows
    sides = [{"l": ":--", "r": "--:"}[each] for each in align]
    return [f"| {' | '.join(cells)} |" for cells in (heading, sides, *others)]
