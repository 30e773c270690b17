"""Words (or tokens) as points in the plane, near each other if their vectors are similar; labels do not overlap."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.pictures.labels import Box, Label, nearest_in, place_labels
from elmo_fast.pictures.reduction import Plane, to_plane
from elmo_fast.pictures.style import COLOURS, GREY, fonts_for, format_of, new_figure, plain, save, shown

WIDTH, HEIGHT, FONT = 11.0, 8.0, 8.0
FAINT = "#b4c4d2"  # points without a label
MARGIN = 1.5  # pixels around a label that stay free


class Drawn(NamedTuple):
    """The content of a picture: points [N, 2]; labelled: how many have a label; omitted: words without room for one."""

    points: npt.NDArray[np.float32]
    labelled: int
    omitted: list[str]


def words_picture(
    words: Sequence[str],
    matrix: npt.NDArray[Any],
    path: str | os.PathLike[str],
    method: str = "tsne",
    *,
    seed: int = 0,
    most_labels: int = 300,
    title: str = "",
) -> Drawn:
    """Writes the picture of words by t-SNE or PCA of their vectors' directions (each divided by its length).

    Labels are placed in the order of the words, so put the most important first; labels without room are left out, and
    the picture says how many.

    Args:
        words: N words; a word may occur more than once (tokens).
        matrix: their vectors, [N, D].
        path: the file, whose suffix gives the format (.png, .pdf, .svg).
        method, seed: as in to_plane.
        most_labels: maximum number of labels; other words are points.
        title: of the picture.

    Raises: ElmoFastError; MissingExtraError without matplotlib or scikit-learn.
    """
    format_of(path)
    not_a_string(words, "words", "a list of words")
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise ElmoFastError(f"matrix must be [{len(words)}, D], a row per word; got {list(matrix.shape)}")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    plane = to_plane(np.divide(matrix, lengths, out=np.zeros_like(matrix), where=lengths > 0), method, seed)
    with fonts_for([title, *words[:most_labels]]):
        figure, drawn = picture(words, plane, most_labels, title or title_of(words))
        save(figure, path)
    return drawn


def picture(words: Sequence[str], plane: Plane, most_labels: int, title: str) -> tuple[Any, Drawn]:
    """matplotlib's Figure of words at the points of a plane, and what it contains."""
    figure = new_figure(WIDTH, HEIGHT, layout=None)
    axes = figure.add_axes((0.02, 0.05, 0.96, 0.9))
    plain(axes, shown(title), grid=None)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    dots = axes.scatter(*plane.points.T, s=9, color=COLOURS[0], linewidths=0)
    labels = label_points(axes, plane.points, words[:most_labels])
    dots.set_color([FAINT if label is None else COLOURS[0] for label in labels] + [FAINT] * (len(words) - len(labels)))
    omitted = [word for word, label in zip(words, labels, strict=False) if label is None]
    said = [plane.how]
    if omitted:
        said.append(f"{len(omitted)} of {len(labels)} labels left out for lack of room")
    if len(words) > len(labels):
        said.append(f"{len(words) - len(labels)} further points without a label")
    figure.text(0.02, 0.02, "; ".join(said), fontsize=8, color=GREY)
    return figure, Drawn(plane.points, len(labels) - len(omitted), omitted)


def title_of(words: Sequence[str]) -> str:
    """ "300 words", or "300 tokens" if a word occurs twice."""
    return f"{len(words):,} {'words' if len(set(words)) == len(words) else 'tokens'}"


def label_points(axes: Any, points: npt.NDArray[np.floating], texts: Sequence[str]) -> list[Label | None]:
    """Writes the texts beside the first len(texts) points where there is room; the place of each, in pixels."""
    axes.get_xlim()  # the limits are computed when asked for, not when the transform is
    pixels = axes.transData.transform(points)
    bounds = axes.get_window_extent()
    sizes = [_size(axes, text) for text in texts]
    labels = place_labels(pixels, sizes, Box(bounds.x0, bounds.y0, bounds.x1, bounds.y1))
    for text, label, pixel in zip(texts, labels, pixels, strict=False):
        if label is not None:
            _write(axes, shown(text), label, pixel)
    return labels


def _size(axes: Any, text: str) -> tuple[float, float]:
    """Width and height in pixels of a text, with a margin."""
    artist = axes.text(0, 0, shown(text), fontsize=FONT)
    extent = artist.get_window_extent()
    artist.remove()
    return extent.width + 2 * MARGIN, extent.height + 2 * MARGIN


def _write(axes: Any, text: str, label: Label, pixel: npt.NDArray[np.floating]) -> None:
    to_data = axes.transData.inverted().transform
    centre = np.array([label.box.left + label.box.right, label.box.bottom + label.box.top]) / 2
    offset = (centre - pixel) * 72 / axes.figure.dpi
    looks = {"fontsize": FONT, "ha": "center", "va": "center", "textcoords": "offset points"}
    axes.annotate(text, to_data(pixel), offset, **looks, annotation_clip=False)
    if label.leader:
        ends = to_data([pixel, nearest_in(label.box, pixel)])
        axes.plot(*ends.T, color=GREY, linewidth=0.5, alpha=0.7, zorder=0, scalex=False, scaley=False)
