"""A run's curves as a picture: perplexities, speed and gradient norm over the words seen. It needs no torch."""

import math
import os
from collections.abc import Mapping
from typing import Any

from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures.style import COLOURS, format_of, new_figure, plain, save, shown
from elmo_fast.pretrain.log.metrics import Metrics

# The ticks of each decade of a logarithmic axis.
SUBS = (1, 2, 5)


def draw_curves(runs: Mapping[str, Metrics], path: str | os.PathLike[str]) -> None:
    """Writes one picture of all runs, one colour each.

    runs: label -> its metrics; path: the file, whose suffix gives the format (.png, .pdf, .svg).
    Raises ElmoFastError without matplotlib, for another suffix, or for a run that has not reported yet.
    """
    format_of(path)
    for label, metrics in runs.items():
        if not metrics.steps:
            raise ElmoFastError(f"{label} has no training report yet; there is one every log_interval steps")
    save(picture(runs), path)


def picture(runs: Mapping[str, Metrics]) -> Any:
    """matplotlib's Figure of all runs, whose axes are perplexity, speed and gradient norm, in this order."""
    figure = new_figure(11, 5.6)
    mosaic: list[Any] = [["perplexity", "speed"], ["perplexity", "norm"]]
    places = figure.subplot_mosaic(mosaic, width_ratios=[1.7, 1])
    for number, (label, metrics) in enumerate(runs.items()):
        _run(places, shown(label), metrics, COLOURS[number % len(COLOURS)])
    _dress(places, any(metrics.restarts for metrics in runs.values()))
    return figure


def _run(places: Mapping[str, Any], label: str, metrics: Metrics, colour: str) -> None:
    """Draws a run into all axes."""

    def line(axes: str, name: str, **looks: Any) -> None:
        words, values = metrics.column(name)
        if words:
            marker = "." if len(words) == 1 else None
            places[axes].plot(words, values, **{"color": colour, "marker": marker, **looks})

    line("speed", "words_per_second", linewidth=1.0)
    line("norm", "gradient_norm", linewidth=1.0)
    # Negative sampling has neither perplexity.
    line("perplexity", "sampled_perplexity", alpha=0.55, label=f"{label}: training, sampled softmax")
    line("perplexity", "training_perplexity", alpha=0.55, label=f"{label}: training, whole vocabulary")
    words = [row["words"] for row in metrics.heldout]
    for way, marker, style, inside in (("forward", "o", "-", colour), ("backward", "s", "--", "white")):
        if values := [row.get(f"perplexity_{way}", float("nan")) for row in metrics.heldout]:
            legend = f"{label}: held-out {way}, {values[-1]:,.1f} at the end"
            looks = {"color": colour, "linestyle": style, "markerfacecolor": inside, "markersize": 4.5}
            places["perplexity"].plot(words, values, marker=marker, label=legend, **looks)
    for axes in places.values():
        for restart in metrics.restarts:
            axes.axvline(restart, color=colour, linewidth=0.8, linestyle=":", zorder=0)


def _dress(places: Mapping[str, Any], restarted: bool) -> None:
    """Sets scales, names, grids and the legend."""
    from matplotlib.ticker import EngFormatter

    titles = {
        "perplexity": "perplexity per word, logarithmic",
        "speed": "tokens per second",
        "norm": "gradient norm before the clip, logarithmic",
    }
    for name, title in titles.items():
        axes = places[name]
        plain(axes, title)
        axes.set_xlabel("words seen")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    _logarithmic(places["perplexity"], "x")
    for name in ("perplexity", "norm"):
        _logarithmic(places[name], "y")
    places["speed"].set_ylim(bottom=0)
    places["speed"].yaxis.set_major_formatter(EngFormatter(sep=""))
    if restarted:
        places["perplexity"].plot([], [], color="#777777", linewidth=0.8, linestyle=":", label="restart")
    places["perplexity"].legend(frameon=False, fontsize=8)


def _logarithmic(axes: Any, way: str) -> None:
    """A logarithmic axis: labelled ticks at 1, 2 and 5 of every decade, at least two, and small ticks between."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

    if math.isinf(getattr(axes.dataLim, f"minpos{way}")):
        return  # no positive number
    getattr(axes, f"set_{way}scale")("log")
    low, high = getattr(axes, f"get_{way}lim")()
    if sum(low <= tick <= high for tick in _ticks(low, high)) < 2:
        # Otherwise matplotlib writes 1.35, 1.4, 1.45, and the axis looks linear.
        ticks = _ticks(low, high)
        low, high = max(tick for tick in ticks if tick <= low), min(tick for tick in ticks if tick >= high)
        getattr(axes, f"set_{way}lim")(low, high)
    axis = getattr(axes, f"{way}axis")
    axis.set_major_locator(LogLocator(subs=SUBS))
    axis.set_minor_locator(
        LogLocator(subs=[n / 10 for n in range(11, 100)] if high < 4 * low else range(2, 10), numticks=999)
    )
    axis.set_major_formatter(EngFormatter(sep="") if way == "x" else StrMethodFormatter("{x:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every decade from below `low` to above `high`."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    return [float(f"{sub}e{decade}") for decade in decades for sub in SUBS]
