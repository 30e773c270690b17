"""The report's pictures."""

import pathlib
from collections.abc import Sequence
from typing import Any

from elmo_fast.errors import require
from elmo_fast.files import replacing
from elmo_fast.report.outcome import Outcome
from elmo_fast.report.statistics import Spread
from elmo_fast.report.tables import by_share, named

BLUE, ORANGE = "#0072b2", "#d55e00"


def figure(width: float, height: float, panels: int = 1) -> tuple[Any, list[Any]]:
    """A figure and its axes, side by side."""
    whole = require("matplotlib.figure", "plots", "A picture of the report").Figure(
        figsize=(width, height), layout="constrained"
    )
    places = [whole.add_subplot(1, panels, number + 1) for number in range(panels)]
    for axes in places:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    return whole, places


def save(whole: Any, path: pathlib.Path) -> str:
    """Writes the PNG and returns its name, for a link."""
    with replacing(path) as aside:
        whole.savefig(aside, format="png", dpi=120)
    return path.name


def share_curves(outcome: Outcome, targets: Sequence[str | None], shares: Sequence[float], path: pathlib.Path) -> str:
    """Score against share of the training data: mean and range over seeds, a panel per column of labels."""
    whole, places = figure(5.2 * len(targets), 4, len(targets))
    for axes, target in zip(places, targets, strict=True):
        for label, colour, marker in (("+ ELMo", ORANGE, "o"), ("baseline", BLUE, "s")):
            curve = by_share(outcome, target, shares, label)
            x = [100 * share for share in curve]
            means = [100 * value.mean for value in curve.values()]
            axes.plot(x, means, color=colour, marker=marker, label=label)
            low, high = ([100 * getattr(value, end) for value in curve.values()] for end in ("low", "high"))
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g} %" for value in x])
        axes.minorticks_off()
        axes.set_xlabel("share of the training sentences")
        axes.set_title(named(target), fontsize=10, loc="left")
        axes.legend(frameon=False, loc="lower right")
    places[0].set_ylabel(f"{outcome.metric()} on test, %")
    return save(whole, path)


def layer_scores(outcome: Outcome, targets: Sequence[str | None], path: pathlib.Path) -> str:
    """Each layer alone under a linear classifier: a bar per layer, the seeds as points."""
    whole, places = figure(4.4 * len(targets), 3.6, len(targets))
    for axes, target in zip(places, targets, strict=True):
        found = outcome.rows("layers", target)
        means = [100 * value.mean for value in found.values()]
        bars = axes.bar(range(len(found)), means, 0.7, color=[BLUE] * (len(found) - 1) + [ORANGE])
        axes.bar_label(bars, fmt="%.1f", padding=4, fontsize=9)
        axes.errorbar(range(len(found)), means, _reach(list(found.values())), fmt="none", ecolor="#333333", capsize=3)
        lowest = min(100 * value.low for value in found.values())
        axes.set_ylim(max(0, lowest - 0.35 * (max(means) - lowest + 2)), max(means) + 0.25 * (max(means) - lowest + 2))
        axes.set_xticks(range(len(found)), list(found))
        axes.set_title(f"{named(target)} (axis does not begin at 0)", fontsize=10, loc="left")
    places[0].set_ylabel(f"{outcome.metric()} on test, %")
    return save(whole, path)


def _reach(values: list[Spread]) -> list[list[float]]:
    return [[100 * (v.mean - v.low) for v in values], [100 * (v.high - v.mean) for v in values]]


def weight_map(outcome: Outcome, targets: Sequence[str | None], names: list[str], path: pathlib.Path) -> str:
    """The learned weight of each layer, for every place and column of labels: figure 2 of the paper."""
    rows = {
        f"{named(target)}, {label}" + (f": {mix}" if len(mixes) > 1 else ""): weights
        for target in targets
        for label, mixes in outcome.weights("placement", target).items()
        for mix, weights in mixes.items()
    }
    whole, (axes,) = figure(1.9 + 1.3 * len(names), 0.9 + 0.36 * len(rows))
    axes.grid(visible=False)
    image = axes.imshow(list(rows.values()), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, weights in enumerate(rows.values()):
        for x, weight in enumerate(weights):
            axes.text(x, y, f"{weight:.2f}", ha="center", va="center", color="white" if weight > 0.55 else "black")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    whole.colorbar(image, ax=axes, label="weight", shrink=0.9)
    return save(whole, path)
