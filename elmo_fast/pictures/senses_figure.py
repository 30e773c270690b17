"""The senses of a word as PNG, SVG or PDF: a point per occurrence, a colour and a shape per cluster."""

import os
import textwrap
from typing import Any

from elmo_fast.pictures.senses import Senses
from elmo_fast.pictures.style import COLOURS, GREY, fonts_for, format_of, legend_below, new_figure, plain, save, shown

# matplotlib's markers, and the same as SVG paths of a radius near 6.
MARKERS = {
    "o": "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z",
    "s": "M-5.3-5.3h10.6v10.6h-10.6z",
    "^": "M0-6.8L6.2 5H-6.2z",
    "D": "M0-7.2L7.2 0L0 7.2L-7.2 0z",
    "v": "M0 6.8L6.2-5H-6.2z",
    "P": "M-2.3-6.5h4.6v4.2h4.2v4.6h-4.2v4.2h-4.6v-4.2h-4.2v-4.6h4.2z",
    "X": "M-6-3L-3-6L0-3L3-6L6-3L3 0L6 3L3 6L0 3L-3 6L-6 3L-3 0z",
    "*": "M0-7.5L1.8-2.4L7.1-2.3L2.9.9L4.4 6L0 3L-4.4 6L-2.9.9L-7.1-2.3L-1.8-2.4z",
}
FRAME = "#d5d8dd"
LINE = 150  # characters of the caption


def senses_picture(senses: Senses, word: str, path: str | os.PathLike[str], about: str = "") -> None:
    """Writes the picture of a word's occurrences, with the size and the most typical words of each cluster.

    Args:
        senses: from senses_of.
        word: for the title.
        path: the file, whose suffix gives the format (.png, .pdf, .svg).
        about: text below the picture, such as the text and the model.

    Raises: ElmoFastError, MissingExtraError without matplotlib.
    """
    format_of(path)
    with fonts_for([word, about, *(each for words in senses.typical for each in words)]):
        save(picture(senses, word, about), path)


def looks(cluster: int) -> tuple[str, str]:
    """Colour and marker of a cluster; beyond eight, the same colours with other markers."""
    marker = list(MARKERS)[(cluster + cluster // len(COLOURS)) % len(MARKERS)]
    return COLOURS[cluster % len(COLOURS)], marker


def title_of(senses: Senses, word: str) -> str:
    """The content of a picture in one line: '"bank": 120 occurrences in 2 clusters'."""
    many, parts = len(senses.labels), len(senses.sizes)
    occurrences = "1 occurrence" if many == 1 else f"{many:,} occurrences"
    return f'"{word}": {occurrences} in {parts} cluster{"s" if parts > 1 else ""}'


def caption(senses: Senses, about: str) -> str:
    """One line: about; what the points are; how well the clusters separate, unless their number was given."""
    said = [about, senses.how]
    if senses.silhouettes:
        best = max(senses.silhouettes.values())
        found = f"silhouette {senses.silhouettes.get(len(senses.sizes), best):.2f}"
        found += f", of single clouds at most {senses.chance:.2f}"
        said.append(found if len(senses.sizes) > 1 else f"no separate groups: best {found}")
    return "; ".join(filter(None, said))


def picture(senses: Senses, word: str, about: str = "") -> Any:
    """matplotlib's Figure of the clusters."""
    figure = new_figure(10, 6)
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.1)
    axes = figure.subplots()
    plain(axes, shown(title_of(senses, word)), grid=None)
    axes.spines[:].set(visible=True, color=FRAME)
    axes.set(xticks=[], yticks=[])
    for cluster, (size, typical) in enumerate(zip(senses.sizes, senses.typical, strict=True)):
        colour, marker = looks(cluster)
        label = f"{size:,}: {', '.join(typical) or 'no typical words'}"
        points = senses.points[senses.labels == cluster]
        axes.scatter(*points.T, s=22, c=colour, marker=marker, alpha=0.8, linewidths=0, label=shown(label))
    title = "occurrences: words most typical of their contexts"
    legend_below(figure, loc="outside lower left", most_columns=1, title=title, title_fontsize=9)
    axes.set_xlabel(textwrap.fill(shown(caption(senses, about)), LINE), fontsize=8, color=GREY, loc="left")
    return figure
