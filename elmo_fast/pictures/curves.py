"""Curves of runs as a picture: perplexities, speed and gradient norm over the words seen. They need no torch."""

import math
import os
from collections.abc import Mapping
from typing import Any

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures.style import COLOURS, legend_below, new_figure, plain, shown, write_picture
from elmo_fast.pretrain.metrics import Metrics

TITLES = {"perplexity": "perplexity per word, logarithmic", "speed": "tokens per second"}
TITLES |= {"norm": "gradient norm before the clip, logarithmic"}


def draw_curves(runs: Mapping[str, Metrics], path: str | os.PathLike[str]) -> None:
    """Write one picture of all runs, one colour each.

    runs: label -> its metrics; path: the file, whose suffix gives the format (.png, .pdf, .svg).
    Raises ElmoFastError without matplotlib, for another suffix, or for a run that has not reported yet.
    """
    for label, metrics in runs.items():
        if not metrics.steps:
            raise ElmoFastError(f"{label} has no training report yet; there is one every log_interval steps")
    write_picture(lambda: picture(runs), path, runs)


def picture(runs: Mapping[str, Metrics]) -> Any:
    """Draw matplotlib's Figure of all runs, whose axes are perplexity, speed and gradient norm, in this order."""
    from matplotlib.ticker import EngFormatter, LogFormatter, LogLocator, NullFormatter, StrMethodFormatter

    figure = new_figure(11, 5.6)
    mosaic: list[Any] = [["perplexity", "speed"], ["perplexity", "norm"]]
    places = figure.subplot_mosaic(mosaic, width_ratios=[1.7, 1], sharex=True)
    for number, (label, metrics) in enumerate(runs.items()):
        _run(places, shown(label), metrics, COLOURS[number % len(COLOURS)])
    for name, title in TITLES.items():
        plain(places[name], title)
        places[name].tick_params(labelbottom=name != "speed")
    for name in ("perplexity", "norm"):
        places[name].set_xlabel("words seen, logarithmic")
        if not math.isinf(places[name].dataLim.minposy):  # there are numbers above 0
            places[name].set_yscale("log")
            places[name].yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
            places[name].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    places["norm"].set_xscale("log")
    places["norm"].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    places["norm"].xaxis.set_major_formatter(EngFormatter(sep=""))
    places["norm"].xaxis.set_minor_formatter(NullFormatter())
    places["speed"].set_ylim(bottom=0)
    places["speed"].yaxis.set_major_formatter(EngFormatter(sep=""))
    legend_below(figure, 8)
    return figure


def _run(places: Mapping[str, Any], label: str, metrics: Metrics, colour: str) -> None:
    """Draw a run into all axes."""
    lines: dict[tuple[str, str], dict[str, Any]] = {
        ("speed", "words_per_second"): {"linewidth": 1.0},
        ("norm", "gradient_norm"): {"linewidth": 1.0},
        # Negative sampling has neither perplexity.
        ("perplexity", "sampled_perplexity"): {"alpha": 0.55, "label": f"{label}: training, sampled softmax"},
        ("perplexity", "training_perplexity"): {"alpha": 0.55, "label": f"{label}: training, whole vocabulary"},
    }
    for (axes, name), looks in lines.items():
        words, values = metrics.column(name)
        if words:
            places[axes].plot(words, values, color=colour, marker="." if len(words) == 1 else None, **looks)
    words = [row["words"] for row in metrics.heldout]
    for way, marker, style, inside in (("forward", "o", "-", colour), ("backward", "s", "--", "white")):
        if values := [row.get(f"perplexity_{way}", float("nan")) for row in metrics.heldout]:
            legend = f"{label}: held-out {way}, {values[-1]:,.1f} at the end"
            looks = {"color": colour, "linestyle": style, "markerfacecolor": inside, "markersize": 4.5}
            places["perplexity"].plot(words, values, marker=marker, label=legend, **looks)
    for each in places.values():
        for number, restart in enumerate(metrics.restarts):
            name = "_" if number else f"{label}: restart"  # one entry of the legend for all
            each.axvline(restart, color=colour, linewidth=0.8, linestyle=":", zorder=0, label=name)
