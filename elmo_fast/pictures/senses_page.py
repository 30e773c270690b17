"""The senses of a word as one self-contained HTML file: each occurrence is a point that shows its sentence."""

import html
import importlib.resources
import json
import os
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_text
from elmo_fast.pictures.occurrences import Occurrence
from elmo_fast.pictures.senses import Senses
from elmo_fast.pictures.senses_figure import MARKERS, caption, looks, title_of

WIDTH, HEIGHT, MARGIN = 900.0, 620.0, 24.0


def write_senses_page(
    senses: Senses,
    occurrences: Sequence[Occurrence],
    word: str,
    path: str | os.PathLike[str],
    about: str = "",
    language: str = "en",
) -> None:
    """Writes the page: points coloured by cluster, a legend that shows and hides clusters, the sentence under the
    pointer.

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
    page = _filled(
        {
            "language": html.escape(language),
            "title": html.escape(title_of(senses, word)),
            "about": html.escape(caption(senses, about) + "."),
            "width": f"{WIDTH:g}",
            "height": f"{HEIGHT:g}",
            "points": _points(senses, occurrences),
            "legend": "\n".join(map(_entry, range(len(senses.sizes)), senses.sizes, senses.typical)),
            "table": _table(senses, occurrences),
            "data": _data(occurrences),
        }
    )
    write_text(path, page)


def _filled(parts: dict[str, str]) -> str:
    """The template with every {{name}} replaced, once: inserted text is not searched again."""
    template = importlib.resources.files("elmo_fast.pictures").joinpath("senses_page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _on_screen(points: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Points in pixels, y downwards; both axes are stretched to fill the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (points - low) / spread, 0.5)
    share[:, 1] = 1 - share[:, 1]
    return MARGIN + share * (np.array([WIDTH, HEIGHT]) - 2 * MARGIN)


def _points(senses: Senses, occurrences: Sequence[Occurrence]) -> str:
    rows = []
    for index, (x, y) in enumerate(_on_screen(senses.points)):
        cluster = int(senses.labels[index])
        colour, marker = looks(cluster)
        said = html.escape(" ".join(occurrences[index].tokens))
        rows.append(
            f'<g class="point c{cluster}" data-cluster="{cluster}" data-x="{x:.1f}" data-y="{y:.1f}" '
            f'transform="translate({x:.1f} {y:.1f})" style="color:{colour}" tabindex="{0 if index == 0 else -1}" '
            f'role="img" aria-label="cluster {cluster + 1}: {said}"><path d="{MARKERS[marker]}"/></g>'
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


def _table(senses: Senses, occurrences: Sequence[Occurrence]) -> str:
    rows = []
    for index in np.argsort(senses.labels, kind="stable"):
        before, word, after = map(html.escape, _parts(occurrences[index]))
        where = f"{int(senses.labels[index]) + 1}, line {occurrences[index].line + 1}"
        rows.append(f"<tr><td>{where}</td><td>{before} <b>{word}</b> {after}</td></tr>")
    return "\n".join(rows)


def _parts(occurrence: Occurrence) -> tuple[str, str, str]:
    """The text before the word, the word, the text after it."""
    _, place, tokens = occurrence
    return " ".join(tokens[:place]), tokens[place], " ".join(tokens[place + 1 :])


def _data(occurrences: Sequence[Occurrence]) -> str:
    """[[line from 1, before, word, after]] as JSON that cannot end a script element."""
    rows = [[occurrence.line + 1, *_parts(occurrence)] for occurrence in occurrences]
    return json.dumps(rows, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
