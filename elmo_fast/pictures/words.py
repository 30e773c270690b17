"""Words (or tokens) as points in the plane, near each other if their vectors are similar.

Labels overlap neither each other nor the points.
"""

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.embed.layers import unit_rows
from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.pictures.reduction import Plane, to_plane
from elmo_fast.pictures.style import COLOURS, GREY, fonts_for, format_of, new_figure, plain, save, shown

# Directions tried around a point, best first: right and left read best, then above, below and diagonal.
ANGLES = tuple(math.radians(a) for a in (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 202, 338, 68, 112, 248, 292))
DISTANCES = (4.0, 9.0, 16.0)  # from the point to the label, in pixels
RADIUS = 3.0  # of a point as drawn
# All places around a point, best first: distance, then cosine and sine of the direction.
PLACES = np.array([(distance, math.cos(angle), math.sin(angle)) for distance in DISTANCES for angle in ANGLES])

Floats = npt.NDArray[np.floating]
Box = tuple[float, float, float, float]  # left, bottom, right, top


def place_labels(points: Floats, sizes: Sequence[Any], bounds: Box) -> list[Box | None]:
    """Find a place for each label, in their order, or None if there is no room; deterministic.

    Args:
        points: [N, 2], in pixels.
        sizes: width and height of the labels of the first len(sizes) points; the other points have none.
        bounds: labels stay inside it.
    """
    placed: list[Box | None] = []
    occupied = np.hstack([points - RADIUS, points + RADIUS])  # the points, then the labels: [n, 4]
    directions = PLACES[:, 1:]
    for point, size in zip(points, map(np.array, sizes), strict=False):
        # The label's nearest side or corner is at each of PLACES around the point: [places, 4].
        shift = np.copysign(size / 2, directions) * np.minimum(1.0, np.abs(directions) * 1.5)
        centres = point + directions * (PLACES[:, :1] + RADIUS) + shift
        boxes = np.hstack([centres - size / 2, centres + size / 2])
        left, bottom, right, top = occupied.T[:, :, None]  # against all boxes: [n, places]
        clash = (left < boxes[:, 2]) & (right > boxes[:, 0]) & (bottom < boxes[:, 3]) & (top > boxes[:, 1])
        inside = (boxes[:, :2] >= bounds[:2]).all(1) & (boxes[:, 2:] <= bounds[2:]).all(1)
        free = boxes[inside & ~clash.any(0)][:1]
        occupied = np.vstack([occupied, free])
        placed.append(tuple(free[0].tolist()) if len(free) else None)
    return placed


WIDTH, HEIGHT, FONT = 9.0, 6.5, 8.0
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
    method: str | None = None,
    *,
    arrows: bool = False,
    seed: int = 0,
    most_labels: int = 300,
    title: str = "",
) -> Drawn:
    """Write the picture of words by t-SNE or PCA of their vectors' directions (each divided by its length).

    Labels are placed in the order of the words, so put the most important first; labels without room are left out, and
    the picture says how many.

    Args:
        words: N words; a word may occur more than once (tokens).
        matrix: their vectors, [N, D].
        path: the file, whose suffix gives the format (.png, .pdf, .svg).
        method, seed: as in to_plane; None: "tsne", or "pca" with arrows.
        arrows: draw an arrow from the first word to the second, from the third to the fourth, and so on: those of an
            analogy are parallel. The picture says how parallel they are in D dimensions: the mean cosine of two arrows.
        most_labels: maximum number of labels; other words are points.
        title: of the picture.

    Raises: ElmoFastError; MissingExtraError without matplotlib or scikit-learn.
    """
    format_of(path)
    not_a_string(words, "words", "a list of words")
    if matrix.ndim != 2 or len(matrix) != len(words):
        raise ElmoFastError(f"matrix must be [{len(words)}, D], a row per word; got {list(matrix.shape)}")
    if arrows and (method == "tsne" or len(words) % 2):
        what = 'an even number of words (from, to, from, to) and method="pca", as t-SNE keeps no directions'
        raise ElmoFastError(f"arrows need {what}; got {len(words)} words and {method!r}")
    unit = unit_rows(matrix)
    if arrows and (same := np.flatnonzero((unit[1::2] == unit[::2]).all(1))).size:
        one, other = words[2 * same[0]], words[2 * same[0] + 1]
        raise ElmoFastError(f"arrows need two directions each; the vectors of {one!r} and {other!r} have the same")
    plane = to_plane(unit, method or ("pca" if arrows else "tsne"), seed)
    if arrows and len(words) > 2:
        steps = unit_rows(unit[1::2] - unit[::2])
        cosine = (steps @ steps.T)[np.triu_indices(len(steps), 1)].mean()
        how = f"mean cosine of two arrows in {matrix.shape[1]} dimensions: {cosine:.2f}"
        plane = plane._replace(how=f"{plane.how}; {how}")
    kind = "words" if len(set(words)) == len(words) else "tokens"
    with fonts_for([title, *words[:most_labels]]):
        figure, drawn = picture(words, plane, most_labels, title or f"{len(words):,} {kind}", arrows)
        save(figure, path)
    return drawn


def picture(
    words: Sequence[str], plane: Plane, most_labels: int, title: str, arrows: bool = False
) -> tuple[Any, Drawn]:
    """Draw matplotlib's Figure of words at the points of a plane; return it and what it contains."""
    figure = new_figure(WIDTH, HEIGHT, layout=None)
    axes = figure.add_axes((0.02, 0.05, 0.96, 0.9))
    plain(axes, shown(title), grid=None)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    dots = axes.scatter(*plane.points.T, s=9, color=COLOURS[0], linewidths=0)
    if arrows:
        axes.set_aspect("equal", adjustable="datalim")
        axes.apply_aspect()  # labels are placed by the final limits
        looks = {"arrowstyle": "->", "color": COLOURS[1], "shrinkA": 3, "shrinkB": 3}
        for start, end in zip(plane.points[::2], plane.points[1::2], strict=True):
            axes.annotate("", end, start, arrowprops=looks)
    labels = label_points(axes, plane.points, words[:most_labels])
    further = len(words) - len(labels)
    dots.set_color([FAINT if label is None else COLOURS[0] for label in labels] + [FAINT] * further)
    omitted = [word for word, label in zip(words, labels, strict=False) if label is None]
    room = f"labels left out for lack of room: {len(omitted)} of {len(labels)}" if omitted else ""
    others = f"further points without a label: {further}" if further else ""
    figure.text(0.02, 0.02, "; ".join(filter(None, [plane.how, room, others])), fontsize=8, color=GREY)
    return figure, Drawn(plane.points, len(labels) - len(omitted), omitted)


def label_points(axes: Any, points: npt.NDArray[np.floating], texts: Sequence[str]) -> list[Box | None]:
    """Write the texts next to the first len(texts) points where there is room; return the place of each, in pixels."""
    axes.get_xlim()  # the limits are computed when asked for, not when the transform is
    artists = [axes.text(0, 0, shown(text), fontsize=FONT, ha="center", va="center") for text in texts]
    sizes = [artist.get_window_extent().size + 2 * MARGIN for artist in artists]
    labels = place_labels(axes.transData.transform(points), sizes, axes.get_window_extent().extents)
    for artist, label in zip(artists, labels, strict=True):
        if label is None:
            artist.remove()
        else:
            artist.set_position(axes.transData.inverted().transform(np.add(label[:2], label[2:]) / 2))
    return labels
