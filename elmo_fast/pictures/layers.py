"""The use of each layer: the learned weights of scalar mixes, as bars, or as a table if there are many."""

import math
import os
import pathlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from elmo_fast._io.atomic_folder import has_files, read_folder
from elmo_fast._io.fields import read_json
from elmo_fast.errors import ElmoFastError
from elmo_fast.pictures.style import COLOURS, GREY, legend_below, middle_cut, new_figure, plain, shown, write_picture

RESULTS_FILE = "results.json"
LONGEST_NAME = 80  # characters of a table's row
ROUNDED = 0.02  # weights of two decimals sum to 1 as far as this
MOST_BARS = 6  # mixes side by side; more are drawn as a table


class _Results(TypedDict):
    mix_weights: dict[str, list[float]]  # of a task's results.json


def read_layer_weights(path: str | os.PathLike[str], prefix: str | None = None) -> dict[str, list[float]]:
    """Read the weights of the layers of each mix in a model or a task's results: name -> L numbers that sum to 1.

    Args:
        path: a results.json or the folder of a trained task (its "mix_weights"), or a folder or archive of a model with
            scalar mixes (`Elmo.save_pretrained`), whose softmax is taken, or a name that `elmo-fast models` lists.
        prefix: as in elmo_fast.BiLM, of a model.

    Raises: ElmoFastError if there are none, CheckpointError.
    """
    import torch

    from elmo_fast.checkpoints import is_model, load_checkpoint, pretrained_folder

    place = pathlib.Path(path if os.path.isfile(path) else pretrained_folder(path, from_hub=False))
    groups: dict[str, list[float]] = {}
    if has_files(place, RESULTS_FILE):
        groups = read_folder(place, [RESULTS_FILE], lambda at: read_json(at / RESULTS_FILE, _Results))["mix_weights"]
    elif not is_model(place):
        groups = read_json(place, _Results)["mix_weights"]
    else:
        raw: dict[str, dict[int, Any]] = {}
        for name, tensor in load_checkpoint(place, prefix=prefix)[0].items():
            if match := re.fullmatch(r"scalar_mix_(\d+)\.scalar_parameters\.(\d+)", name):
                raw.setdefault(f"mix {match[1]}", {})[int(match[2])] = tensor.double()
        for name, values in sorted(raw.items()):
            groups[name] = torch.cat([values[layer].view(1) for layer in sorted(values)]).softmax(0).tolist()
    # A task that used one layer has no mix, and which layer it was is not recorded here.
    if all(weights == [1] for weights in groups.values()):
        raise ElmoFastError(f"{path} contains no layer weights: it was trained without a mix that learns them")
    _check(groups)
    return groups


def _check(groups: Mapping[str, Sequence[float]]) -> None:
    """Raise ElmoFastError unless all mixes have equally many layers and each one's weights sum to 1."""
    if not groups:
        raise ElmoFastError("groups must contain at least one mix; got none")
    for name, weights in groups.items():
        right = isinstance(weights, list | tuple) and all(isinstance(w, int | float) and w >= 0 for w in weights)
        if not right or not math.isclose(sum(weights), 1, abs_tol=ROUNDED):
            raise ElmoFastError(f"{name}: the weights of the layers must be 0 or more and sum to 1; got {weights}")
    if len({len(weights) for weights in groups.values()}) > 1:
        counts = ", ".join(f"{name} {len(weights)}" for name, weights in groups.items())
        raise ElmoFastError(f"all mixes of one picture must have equally many layers; got {counts}")


def layer_weights(groups: Mapping[str, Sequence[float]], path: str | os.PathLike[str], title: str = "") -> None:
    """Write the picture of the weights: a group of bars per layer, or a table for more than 6 mixes.

    Args:
        groups: name of a mix -> its L weights, which sum to 1; layer 0 is the character encoder's.
        path: the file, whose suffix gives the format (.png, .pdf, .svg).
        title: of the picture.

    Raises: ElmoFastError, MissingExtraError without matplotlib.
    """
    _check(groups)
    write_picture(lambda: picture(groups, title), path, [title, *groups])


def layer_name(number: int) -> str:
    """Return a layer's name in pictures and tables."""
    return f"LSTM {number}" if number else "characters"


def picture(groups: Mapping[str, Sequence[float]], title: str = "") -> Any:
    """Draw matplotlib's Figure of the weights."""
    layers, count = len(next(iter(groups.values()))), len(groups)
    as_table = count > MOST_BARS
    size = (0.5 + 1.4 * layers, 1.1 + 0.36 * count) if as_table else (max(6.0, 0.45 * layers * count + 2), 4.2)
    figure = new_figure(*size)
    axes = figure.subplots()
    (_table if as_table else _bars)(axes, groups)
    plain(axes, grid=None if as_table else "y")
    heading = shown(title or "What each layer is used for: weights of the scalar mix")
    # From the left edge, in as many lines as it needs.
    figure.suptitle(textwrap.fill(heading, int(10.5 * figure.get_figwidth())), x=0.01, ha="left", fontsize=10)
    axes.set_xticks(range(layers), [layer_name(layer) for layer in range(layers)])
    return figure


def _bars(axes: Any, groups: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(groups)
    for number, (label, weights) in enumerate(groups.items()):
        places = [layer + (number - (len(groups) - 1) / 2) * width for layer in range(len(weights))]
        bars = axes.bar(places, weights, width * 0.92, color=COLOURS[number], label=shown(label))
        axes.bar_label(bars, fmt="%.2f", fontsize=8 if len(groups) < 4 else 7, padding=2)
    axes.axhline(1 / len(weights), color=GREY, linewidth=1, linestyle=":", label="at the start", zorder=0)
    axes.set_ylim(0, max(map(max, groups.values())) * 1.12)
    axes.set_ylabel("weight")
    legend_below(axes.figure)


def _table(axes: Any, groups: Mapping[str, Sequence[float]]) -> None:
    # Orange: less than at the start; violet: more. The darkest colours are not reached, so black numbers stay legible.
    table = [list(weights) for weights in groups.values()]
    start = 1 / len(table[0])
    reach = 1.6 * max(0.1, *(abs(weight - start) for weights in table for weight in weights))
    axes.imshow(table, cmap="PuOr", vmin=start - reach, vmax=start + reach, aspect="auto")
    for row, weights in enumerate(table):
        for column, weight in enumerate(weights):
            axes.text(column, row, f"{weight:.2f}", ha="center", va="center", fontsize=9)
    axes.set_yticks(range(len(groups)), [middle_cut(shown(name), LONGEST_NAME) for name in groups])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    widest = max(label.get_window_extent().width for label in axes.get_yticklabels())
    axes.figure.set_figwidth(axes.figure.get_figwidth() + widest / axes.figure.dpi)
