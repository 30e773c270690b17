"""The senses of a word, drawn: a point per occurrence, a colour and a shape per cluster.

As PNG, SVG or PDF, or as one self-contained HTML file, whose points show their sentences.
"""

import html
import importlib.resources
import json
import os
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_text
from elmo_fast.pictures.senses import Occurrence, Senses
from elmo_fast.pictures.style import COLOURS, GREY, legend_below, new_figure, plain, shown, write_picture

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
    """Write the picture of a word's occurrences, with the size and the most typical words of each cluster.

    Args:
        senses: from senses_of.
        word: for the title.
        path: the file, whose suffix gives the format (.png, .pdf, .svg).
        about: text below the picture, such as the text and the model.

    Raises: ElmoFastError, MissingExtraError without matplotlib.
    """
    texts = [word, about, *(each for words in senses.typical for each in words)]
    write_picture(lambda: picture(senses, word, about), path, texts)


def looks(cluster: int) -> tuple[str, str]:
    """Return colour and marker of a cluster; beyond eight, the same colours with other markers."""
    marker = list(MARKERS)[(cluster + cluster // len(COLOURS)) % len(MARKERS)]
    return COLOURS[cluster % len(COLOURS)], marker


def title_of(senses: Senses, word: str) -> str:
    """Summarize a picture in one line: '"bank": 120 occurrences in 2 clusters'."""
    many, parts = len(senses.labels), len(senses.sizes)
    occurrences = "1 occurrence" if many == 1 else f"{many:,} occurrences"
    return f'"{word}": {occurrences} in {parts} cluster{"s" if parts > 1 else ""}'


def caption(senses: Senses, about: str) -> str:
    """Compose one line: about; what the points are; how well the clusters separate, unless their number was given."""
    sentences = [about, senses.how]
    if senses.silhouettes:
        best = max(senses.silhouettes.values())
        silhouette = f"silhouette {senses.silhouettes.get(len(senses.sizes), best):.2f}"
        silhouette += f", of single clouds at most {senses.chance:.2f}"
        sentences.append(silhouette if len(senses.sizes) > 1 else f"no separate groups: best {silhouette}")
    return "; ".join(filter(None, sentences))


def picture(senses: Senses, word: str, about: str = "") -> Any:
    """Draw matplotlib's Figure of the clusters."""
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


WIDTH, HEIGHT, MARGIN = 900.0, 620.0, 24.0


def write_senses_page(
    senses: Senses,
    occurrences: Sequence[Occurrence],
    word: str,
    path: str | os.PathLike[str],
    about: str = "",
    language: str = "en",
) -> None:
    """Write the page of points, coloured by cluster.

    A legend shows and hides clusters, and the pointer shows a sentence.

    The file loads nothing else and forbids the browser to; content of the text is escaped. It works with mouse, touch
    and keyboard.

    Args:
        senses: from senses_of, for these occurrences.
        occurrences: N, whose sentences are shown.
        word: for the title.
        path: the file, .html.
        about: the text and the model, in one line.
        language: of the text, as HTML names it.

    Raises: ElmoFastError.
    """
    if len(occurrences) != len(senses.labels):
        raise ElmoFastError(f"occurrences must be the {len(senses.labels)} that were clustered; got {len(occurrences)}")
    if not os.fspath(path).lower().endswith((".html", ".htm")):
        raise ElmoFastError(f"the page's name must end in .html; got {os.fspath(path)!r}")
    sentences = [_parts(occurrence) for occurrence in occurrences]
    data = [[occurrence.line + 1, *parts] for occurrence, parts in zip(occurrences, sentences, strict=True)]
    parts = {
        "language": html.escape(language),
        "title": html.escape(title_of(senses, word)),
        "about": html.escape(caption(senses, about) + "."),
        "width": f"{WIDTH:g}",
        "height": f"{HEIGHT:g}",
        "points": _points(senses, occurrences),
        "legend": "\n".join(map(_entry, range(len(senses.sizes)), senses.sizes, senses.typical)),
        "table": "\n".join(
            f"<tr><td>{senses.labels[index] + 1}, line {occurrences[index].line + 1}</td>"
            "<td>{} <b>{}</b> {}</td></tr>".format(*map(html.escape, sentences[index]))
            for index in np.argsort(senses.labels, kind="stable")
        ),
        # JSON that cannot end a script element.
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028"),
    }
    template = importlib.resources.files("elmo_fast.pictures").joinpath("senses_page.html").read_text(encoding="utf-8")
    # Every {{name}} is replaced once: inserted text is not searched again.
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template))


def _points(senses: Senses, occurrences: Sequence[Occurrence]) -> str:
    """Return the points as SVG, in pixels, y downwards; both axes are stretched to fill the picture."""
    low, high = senses.points.min(axis=0), senses.points.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (senses.points - low) / spread, 0.5)
    share[:, 1] = 1 - share[:, 1]
    rows = []
    for index, (x, y) in enumerate(MARGIN + share * (np.array([WIDTH, HEIGHT]) - 2 * MARGIN)):
        cluster = int(senses.labels[index])
        colour, marker = looks(cluster)
        sentence = html.escape(" ".join(occurrences[index].tokens))
        rows.append(
            f'<g class="point c{cluster}" data-cluster="{cluster}" data-x="{x:.1f}" data-y="{y:.1f}" '
            f'transform="translate({x:.1f} {y:.1f})" style="color:{colour}" tabindex="{0 if index == 0 else -1}" '
            f'role="img" aria-label="cluster {cluster + 1}: {sentence}"><path d="{MARKERS[marker]}"/></g>'
        )
    return "\n".join(rows)


def _entry(cluster: int, size: int, typical: Sequence[str]) -> str:
    colour, marker = looks(cluster)
    words = html.escape(", ".join(typical)) or "no typical words"
    return (
        f'<li><button type="button" data-cluster="{cluster}" aria-pressed="true">'
        f'<svg class="c{cluster}" viewBox="-8 -8 16 16" style="color:{colour}" aria-hidden="true">'
        f'<path fill="currentColor" d="{MARKERS[marker]}"/></svg>'
        f'<span><b>Cluster {cluster + 1}</b>: {size:,}<span class="words">{words}</span></span></button></li>'
    )


def _parts(occurrence: Occurrence) -> tuple[str, str, str]:
    """Return the text before the word, the word, the text after it."""
    _, place, tokens = occurrence
    return " ".join(tokens[:place]), tokens[place], " ".join(tokens[place + 1 :])
