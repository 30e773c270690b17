"""What all pictures share: colours, plain axes, and writing a complete file."""

import os
import pathlib
from typing import Any

from elmo_fast.errors import ElmoFastError, require
from elmo_fast.files import replacing

# Okabe and Ito's colours, which colour-blind people can distinguish; their yellow is too faint on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#000000")
GREY = "#6b6b6b"
IMAGE_FORMATS = ("png", "pdf", "svg")
DPI = 130


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a picture's suffix names; ElmoFastError for another than .png, .pdf, .svg."""
    kind = pathlib.Path(path).suffix.removeprefix(".").lower()
    if kind not in IMAGE_FORMATS:
        raise ElmoFastError(
            f"the picture's name must end in one of .{', .'.join(IMAGE_FORMATS)}; got {os.fspath(path)!r}"
        )
    return kind


def new_figure(width: float, height: float, **settings: Any) -> Any:
    """matplotlib's Figure of that size in inches, outside pyplot's global state; settings: of matplotlib's Figure.

    Raises MissingExtraError without matplotlib.
    """
    figure = require("matplotlib.figure", "plots", "drawing")
    return figure.Figure(figsize=(width, height), dpi=DPI, **({"layout": "constrained"} | settings))


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Writes the figure in the format of the suffix; the file appears complete or not at all."""
    kind = format_of(path)
    # Without a date the same picture is the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with replacing(path) as aside:
        figure.savefig(aside, format=kind, metadata=metadata)


def plain(axes: Any, title: str = "", grid: str | None = "both") -> None:
    """No frame above and to the right, the title at the left, a faint grid along `grid`: "both", "x", "y" or None."""
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=10, loc="left")
    if grid is not None:
        axes.grid(axis=grid, alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)


def shown(text: str) -> str:
    """A user's text for matplotlib, which would read a formula after a dollar sign."""
    return text.replace("$", r"\$")
