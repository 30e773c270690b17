"""What is aimed at, how far the rows are from it, and how they are told."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.gpu.roofline import Work
from benchmarks.results import GpuRow, significant

OURS = "elmo_fast"
EAGER = "eager"
COMPILED = "torch.compile"
SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0}


class Aim(NamedTuple):
    """What is aimed at: kind "value" (at most, or at least of a rate), "faster" and "memory" (than `against`),
    "share" (of the floor, where that is bytes alone)."""

    kind: str
    value: float
    against: str = ""

    def words(self, unit: str) -> str:
        """The aim as the table says it."""
        if self.kind == "value":
            return f"{'>=' if '/' in unit else '<='} {self.value:,g} {unit}"
        if self.kind == "faster":
            return f">= {self.value:g} x {self.against}"
        if self.kind == "memory":
            return f"<= 1/{1 / self.value:g} of {self.against}'s memory"
        return f">= {100 * self.value:g} % of copy bandwidth"


class What(NamedTuple):
    """What is compared. unit: "us" or "ms" per one of `per`, or "tokens/s" and the like with `per` of them a call."""

    name: str
    precision: str
    unit: str = "ms"
    per: float = 1.0
    work: Work | None = None
    aims: Sequence[Aim] = ()
    graph: bool = True

    def value(self, seconds: float) -> float:
        """A time in this unit."""
        return self.per / seconds if "/" in self.unit else SCALES[self.unit] * seconds / self.per


def judged(what: What, rows: Sequence[GpuRow], ceilings: Mapping[str, float]) -> dict[str, GpuRow]:
    """Writes floor and share into each row of ours and, into the better one, the ratio to the best rival and the aims;
    returns the better row of each side."""
    rate = "/" in what.unit
    best: dict[str, GpuRow] = {}
    for each in rows:
        kept = best.get(each.side)
        if kept is None or (each.median > kept.median if rate else each.median < kept.median):
            best[each.side] = each
    if what.work is not None:
        seconds, bound = what.work.floor(ceilings, what.precision)
        for each in rows:
            if each.ours or len(best) == 1:
                each.floor, each.bound = significant(what.value(seconds)), bound
                each.share = significant(each.median / each.floor if rate else each.floor / each.median, 3)
    if OURS not in best:
        return best
    ours = best[OURS]
    rivals = [each for each in best.values() if not each.side.startswith(OURS)]
    aims = list(what.aims)
    if COMPILED in best and not any(aim.against == COMPILED for aim in aims):
        aims.append(Aim("faster", 1.0, COMPILED))  # slower than what a compiler makes of plain torch is a bug
    for aim in aims:
        if aim.against and aim.against not in best:
            continue
        ours.aims.append({"text": aim.words(what.unit), "reached": reached(aim, ours, best.get(aim.against))})
    if rivals:
        strongest = max(rivals, key=lambda each: each.median if rate else -each.median)
        ours.against = strongest.side
        ours.ratio = significant(times(ours, strongest))
    return best


def times(ours: GpuRow, theirs: GpuRow) -> float:
    """How many times faster ours is."""
    return ours.median / theirs.median if "/" in ours.unit else theirs.median / ours.median


def reached(aim: Aim, ours: GpuRow, theirs: GpuRow | None) -> bool:
    """Whether the aim is."""
    if aim.kind == "value":
        return ours.median >= aim.value if "/" in ours.unit else ours.median <= aim.value
    if aim.kind == "share":
        return ours.share is not None and ours.share >= aim.value
    assert theirs is not None
    if aim.kind == "memory":
        return ours.memory is not None and theirs.memory is not None and ours.memory <= aim.value * theirs.memory
    return times(ours, theirs) >= aim.value
