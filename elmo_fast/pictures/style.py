"""Style shared by all pictures: colours, plain axes, fonts, and writing a complete file."""

import contextlib
import functools
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from elmo_fast._io.atomic_file import atomic_file
from elmo_fast.errors import ElmoFastError, require

# Okabe and Ito's colours, which colour-blind people can distinguish; their yellow is too faint on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#000000")
GREY = "#6b6b6b"
IMAGE_FORMATS = ("png", "pdf", "svg")
DPI = 130


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that a picture's suffix names; ElmoFastError unless it is .png, .pdf or .svg."""
    kind = pathlib.Path(path).suffix.removeprefix(".").lower()
    if kind not in IMAGE_FORMATS:
        raise ElmoFastError(f"a picture must end in one of .{', .'.join(IMAGE_FORMATS)}; got {os.fspath(path)!r}")
    return kind


def new_figure(width: float, height: float, **settings: Any) -> Any:
    """Create matplotlib's Figure of a size in inches, outside pyplot's global state; settings: of matplotlib's Figure.

    Raises MissingExtraError without matplotlib.
    """
    figure = require("matplotlib.figure", "plots", "drawing")
    return figure.Figure(figsize=(width, height), dpi=DPI, **({"layout": "constrained"} | settings))


def save(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure in the format of the suffix; the file appears complete or not at all."""
    kind = format_of(path)
    # Without a date the same picture is the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with atomic_file(path) as aside:
        figure.savefig(aside, format=kind, metadata=metadata)


def write_picture(picture: Callable[[], Any], path: str | os.PathLike[str], texts: Iterable[str]) -> None:
    """Write the figure that `picture` draws, in fonts that have the characters of the texts."""
    with fonts_for(texts, stacklevel=5):
        save(picture(), path)


def legend_below(figure: Any, fontsize: float = 9, most_columns: int = 4, **settings: Any) -> None:
    """Add one legend of all axes below them, in as many columns as fit; the figure grows by the legend's height.

    An entry that is wider than the figure is shortened in its middle. settings: of matplotlib's Figure.legend.
    """
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    settings = {"frameon": False, "fontsize": fontsize, "loc": "outside lower center"} | settings
    most = int(figure.get_figwidth() * 72 / (0.62 * fontsize)) - 8  # characters of a line, besides a line's sample
    labels = [middle_cut(label, most) for label in entries]
    columns = most // (8 + max(map(len, labels), default=0))
    legend = figure.legend(entries.values(), labels, ncols=max(1, min(columns, most_columns, len(labels))), **settings)
    legend._legend_box.align = "left"
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)


def middle_cut(text: str, most: int) -> str:
    """Shorten a text to at most `most` characters: an ellipsis replaces the middle."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"


@contextlib.contextmanager
def fonts_for(texts: Iterable[str], stacklevel: int = 4) -> Iterator[None]:
    """Draw within this block in installed fonts that have the characters of the texts.

    One warning names the characters that no font has; matplotlib draws boxes for these.
    """
    rc_context = require("matplotlib", "plots", "drawing").rc_context
    fonts, missing = _fonts(frozenset("".join(texts)))
    if missing:
        some, many = "".join(sorted(missing)[:8]), len(missing)
        what = f"no installed font has {many} of the picture's characters ({some}{' ...' * (many > 8)})"
        advice = "they are drawn as boxes; install a font that has them, such as Noto Sans CJK"
        warnings.warn(f"{what}: {advice}", stacklevel=stacklevel)
    with rc_context({"font.family": ["sans-serif", *fonts]}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")
        yield


def _fonts(characters: frozenset[str]) -> tuple[list[str], set[str]]:
    """Return the fonts to use after the default one, and the characters that no font has."""
    from matplotlib import font_manager

    missing = {c for c in characters if c.isprintable() and not c.isspace()}
    missing -= _characters(font_manager.findfont(font_manager.FontProperties(family=["sans-serif"])))
    chosen: list[str] = []
    fonts = font_manager.fontManager.ttflist
    for font in sorted(fonts, key=lambda font: (-len(missing and missing & _characters(font.fname)), font.name)):
        # matplotlib's own font of last resort has a box for every character.
        regular = font.style == "normal" and font.weight == 400 and not font.name.startswith("Last Resort")
        if regular and missing & _characters(font.fname):
            chosen.append(font.name)
            missing -= _characters(font.fname)
    return chosen, missing


@functools.cache
def _characters(path: str) -> frozenset[str]:
    """Return the characters of a font; none of a font that matplotlib cannot open, such as one of bitmaps."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


def plain(axes: Any, title: str = "", grid: str | None = "both") -> None:
    """Remove the frame above and to the right; title at the left, faint grid along `grid`: "both", "x", "y" or None."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=10, loc="left")
    if grid is not None:
        axes.grid(axis=grid, alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)


def shown(text: str) -> str:
    """Escape a user's text for matplotlib, which would read a formula after a dollar sign."""
    return text.replace("$", r"\$")
