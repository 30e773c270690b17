"""The report's tables, in Markdown."""

import re
from collections.abc import Sequence

from elmo_fast.report.outcome import Outcome, Spread, beyond_the_spread, error_reduction

Targets = Sequence[str | None]
# A score, a share, a difference, or none: "88.29 ± 0.01", "41.0%", "**+8.13**".
NUMBER = re.compile(r"(\*\*)?[+-]?[\d.,]+( ± [\d.]+)?%?(\*\*)?|none")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: number columns are right-aligned, others and the first are left-aligned."""
    others = [[row[place] for row in rows] for place in range(1, len(header))]
    marks = [":--", *("--:" if cells and all(map(NUMBER.fullmatch, cells)) else ":--" for cells in others)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows))


def named(target: str | None) -> str:
    """A column's name in headings."""
    return target or "labels"


def help_table(outcome: Outcome, targets: Targets) -> str:
    """Baseline, + ELMo, the difference in points and as a share of the errors, and whether seeds explain it."""
    rows = []
    for target in targets:
        base, ours = outcome.rows("help", target).values()
        points = f"{100 * (ours.mean - base.mean):+.2f}"
        verdict = "yes" if beyond_the_spread(ours, base) else "no"
        rows.append([named(target), str(base), str(ours), points, f"{error_reduction(ours, base):.1%}", verdict])
    return table(["labels", "baseline", "+ ELMo", "difference", "fewer errors", "every seed above every seed"], rows)


def rows_by_target(outcome: Outcome, experiment: str, targets: Targets, first: str) -> str:
    """One row per setting, one column per column of labels, the best in bold."""
    columns = [outcome.rows(experiment, target) for target in targets]
    best = [max(column, key=lambda label: column[label].mean) for column in columns]
    rows = []
    for label in columns[0]:
        scores = [str(column[label]) for column in columns]
        rows.append([label, *(f"**{s}**" if label == top else s for s, top in zip(scores, best, strict=True))])
    return table([first, *map(named, targets)], rows)


def share_table(outcome: Outcome, target: str | None) -> str:
    """Baseline and + ELMo for each share of the training data."""
    base, ours = outcome.curves(target).values()
    rows = [
        [f"{share:.1%}", str(base[share]), str(ours[share]), f"{100 * (ours[share].mean - base[share].mean):+.2f}"]
        for share in base
    ]
    return table(["share of the training sentences", "baseline", "+ ELMo", "difference"], rows)


def share_needed(base: dict[float, Spread], ours: dict[float, Spread]) -> float | None:
    """The smallest share at which + ELMo reaches the baseline's score on its largest share; None if none does."""
    return min((share for share in ours if ours[share].mean >= base[max(base)].mean), default=None)
