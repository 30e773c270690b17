"""The demonstration's two pictures."""

import pathlib
from collections.abc import Sequence
from typing import Any

from elmo_fast.demo.probe import Probe
from elmo_fast.pictures.style import COLOURS, GREY, new_figure, plain, save
from elmo_fast.pretrain.log.metrics import read_metrics

BLUE, ORANGE = COLOURS[:2]


def _axes(width: float, height: float) -> tuple[Any, Any]:
    figure = new_figure(width, height)
    axes = figure.subplots()
    plain(axes, grid=None)
    return figure, axes


def _save(figure: Any, path: pathlib.Path) -> pathlib.Path:
    save(figure, path)
    return path


def loss_curve(metrics: pathlib.Path, before: float, after: float, path: pathlib.Path) -> pathlib.Path:
    """Sampled training loss of both directions over the words read, and the held-out perplexity before and after."""
    rows = read_metrics(metrics.parent).steps
    figure, axes = _axes(7.5, 4.2)
    words = [row["words"] / 1000 for row in rows]
    axes.plot(words, [row["loss_forward"] for row in rows], color=BLUE, label="forward")
    axes.plot(words, [row["loss_backward"] for row in rows], color=ORANGE, label="backward")
    axes.set_xlabel("thousand words read")
    axes.set_ylabel("training loss, nats per word (sampled softmax)")
    axes.set_title(f"Held-out perplexity (full softmax): {before:,.0f} before, {after:,.0f} after", fontsize=11)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    return _save(figure, path)


def layer_weights(probes: Sequence[Probe], path: pathlib.Path) -> pathlib.Path:
    """The learned weight of each layer, a group of bars per probe."""
    figure, axes = _axes(7.5, 4.2)
    width = 0.8 / len(probes)
    layers = len(probes[0].weights)
    names = ["characters", *(f"LSTM {i}" for i in range(1, layers))]
    for number, (probe, colour) in enumerate(zip(probes, (BLUE, ORANGE, GREY), strict=False)):
        places = [layer + (number - (len(probes) - 1) / 2) * width for layer in range(layers)]
        label = f"{probe.task}: accuracy {probe.accuracy:.1%} (majority {probe.majority:.1%})"
        bars = axes.bar(places, probe.weights, width * 0.92, color=colour, label=label)
        axes.bar_label(bars, fmt="%.2f", fontsize=9, padding=2)
    axes.axhline(1 / layers, color=GREY, linewidth=1, linestyle=":")
    axes.set_xlim(-0.5, layers - 0.25)
    axes.text(layers - 0.57, 1 / layers, "at the start", color=GREY, fontsize=8, va="bottom")
    axes.set_xticks(range(layers), names)
    axes.set_ylim(0, max(max(probe.weights) for probe in probes) * 1.3)
    axes.set_ylabel("learned weight of the layer")
    axes.set_title("What each layer is used for: scalar mixes trained on two probes", fontsize=11)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    return _save(figure, path)
