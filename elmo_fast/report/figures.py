"""The report's pictures."""

import pathlib
from collections.abc import Sequence
from typing import Any

from elmo_fast.pictures import layer_weights
from elmo_fast.pictures.style import COLOURS, new_figure, plain, save, shown
from elmo_fast.report.outcome import Outcome
from elmo_fast.report.statistics import Spread
from elmo_fast.report.tables import by_share, named

BLUE, ORANGE = COLOURS[:2]


def panels(width: float, height: float, count: int) -> tuple[Any, list[Any]]:
    """A figure and its `count` axes, side by side."""
    figure = new_figure(width * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def share_curves(outcome: Outcome, targets: Sequence[str | None], shares: Sequence[float], path: pathlib.Path) -> str:
    """Score against share of the training data: mean and range over seeds, a panel per column of labels."""
    whole, places = panels(5.2, 4, len(targets))
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
        plain(axes, shown(named(target)), grid="y")
        axes.legend(frameon=False, loc="lower right")
    places[0].set_ylabel(f"{outcome.metric()} on test, %")
    save(whole, path)
    return path.name


def layer_scores(outcome: Outcome, targets: Sequence[str | None], path: pathlib.Path) -> str:
    """Each layer alone with a linear classifier: a bar per layer, the seeds as points."""
    whole, places = panels(4.4, 3.6, len(targets))
    for axes, target in zip(places, targets, strict=True):
        found = outcome.rows("layers", target)
        means = [100 * value.mean for value in found.values()]
        bars = axes.bar(range(len(found)), means, 0.7, color=[BLUE] * (len(found) - 1) + [ORANGE])
        axes.bar_label(bars, fmt="%.1f", label_type="center", color="white", fontsize=10)
        axes.errorbar(range(len(found)), means, _reach(list(found.values())), fmt="none", ecolor="#333333", capsize=3)
        lowest = min(100 * value.low for value in found.values())
        axes.set_ylim(max(0, lowest - 0.35 * (max(means) - lowest + 2)), max(means) + 0.25 * (max(means) - lowest + 2))
        axes.set_xticks(range(len(found)), list(found))
        plain(axes, shown(f"{named(target)} (axis does not start at 0)"), grid="y")
    places[0].set_ylabel(f"{outcome.metric()} on test, %")
    save(whole, path)
    return path.name


def _reach(values: list[Spread]) -> list[list[float]]:
    return [[100 * (v.mean - v.low) for v in values], [100 * (v.high - v.mean) for v in values]]


def weight_map(outcome: Outcome, targets: Sequence[str | None], path: pathlib.Path) -> str:
    """The learned weight of each layer, for every place and column of labels: figure 2 of the paper."""
    groups = {
        f"{named(target)}, {label}" + (f": {mix}" if len(mixes) > 1 else ""): weights
        for target in targets
        for label, mixes in outcome.weights("placement", target).items()
        for mix, weights in mixes.items()
    }
    layer_weights(groups, path, "Learned weights of the layers, mean of the seeds")
    return path.name
