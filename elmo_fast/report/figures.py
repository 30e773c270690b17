"""The report's pictures."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from elmo_fast.pictures import layer_weights
from elmo_fast.pictures.style import COLOURS, legend_below, new_figure, plain, save, shown
from elmo_fast.report.outcome import Outcome
from elmo_fast.report.tables import named

BLUE, ORANGE = COLOURS[:2]
Targets = Sequence[str | None]


def share_curves(outcome: Outcome, targets: Targets, path: pathlib.Path) -> str:
    """Score against share of the training data: mean and range over seeds, a panel per column of labels."""

    def draw(axes: Any, target: str | None) -> str:
        for label, colour, marker in (("+ ELMo", ORANGE, "o"), ("baseline", BLUE, "s")):
            curve = outcome.curves(target)[label]
            x = [100 * share for share in curve]
            low, means, high = ([100 * getattr(v, name) for v in curve.values()] for name in ("low", "mean", "high"))
            axes.plot(x, means, color=colour, marker=marker, label=label)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g} %" for value in x])
        axes.minorticks_off()
        axes.set_xlabel("share of the training sentences")
        return named(target)

    return _panels(outcome, targets, (5.2, 4), path, draw)


def layer_scores(outcome: Outcome, targets: Targets, path: pathlib.Path) -> str:
    """Each layer alone with a linear classifier: a bar per layer, the range over seeds as error bars."""

    def draw(axes: Any, target: str | None) -> str:
        found = outcome.rows("layers", target)
        places, values = range(len(found)), list(found.values())
        means = [100 * value.mean for value in values]
        reach = [[100 * (v.mean - v.low) for v in values], [100 * (v.high - v.mean) for v in values]]
        axes.bar(places, means, 0.7, color=[BLUE] * (len(found) - 1) + [ORANGE])
        axes.errorbar(places, means, reach, fmt="none", ecolor="#333333", capsize=3)
        lowest = min(100 * value.low for value in values)
        span = max(means) - lowest + 2
        bottom = max(0, lowest - 0.35 * span)
        axes.set_ylim(bottom, max(means) + 0.25 * span)
        for place, mean in zip(places, means, strict=True):  # below the error bars, which end above `lowest`
            looks = {"ha": "center", "va": "center", "color": "white", "fontsize": 10}
            axes.text(place, (bottom + lowest) / 2, f"{mean:.1f}", **looks)
        axes.set_xticks(places, list(found))
        return f"{named(target)} (axis does not start at 0)"

    return _panels(outcome, targets, (4.4, 3.6), path, draw)


def _panels(
    outcome: Outcome,
    targets: Targets,
    size: tuple[float, float],
    path: pathlib.Path,
    draw: Callable[[Any, str | None], str],
) -> str:
    """Writes a picture of one panel per column of labels, side by side; `draw` fills a panel and returns its title."""
    figure = new_figure(size[0] * len(targets), size[1])
    panels = figure.subplots(1, len(targets), squeeze=False)[0]
    for axes, target in zip(panels, targets, strict=True):
        plain(axes, shown(draw(axes, target)), grid="y")
    panels[0].set_ylabel(f"{outcome.metric()} on test, %")
    if panels[0].get_legend_handles_labels()[0]:
        legend_below(figure, 10)
    save(figure, path)
    return path.name


def weight_map(outcome: Outcome, targets: Targets, path: pathlib.Path) -> str:
    """The learned weight of each layer, for every place and column of labels: figure 2 of the paper."""
    groups = {
        f"{named(target)}, {label}" + (f": {mix}" if len(mixes) > 1 else ""): weights
        for target in targets
        for label, mixes in outcome.weights("placement", target).items()
        for mix, weights in mixes.items()
    }
    layer_weights(groups, path, "Learned weights of the layers, mean of the seeds")
    return path.name
