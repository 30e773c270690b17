"""Words (or tokens) as points in the plane, near each other if their vectors are similar; labels overlap neither each
other nor the points."""

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.pictures.reduction import Plane, to_plane
from elmo_fast.pictures.style import COLOURS, GREY, fonts_for, format_of, new_figure, plain, save, shown

# Directions tried around a point, best first: right and left read best, then above, below and diagonal.
ANGLES = tuple(math.radians(a) for a in (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 202, 338, 68, 112, 248, 292))
DISTANCES = (4.0, 9.0, 16.0, 24.0, 34.0, 46.0)  # from the point to the label, in pixels
LEADER_FROM = 9.0  # labels this far away get a line to their point


Floats = npt.NDArray[np.floating]


class Box(NamedTuple):
    """A rectangle: left, bottom, right, top."""

    left: float
    bottom: float
    right: float
    top: float


class Label(NamedTuple):
    """The place of a label; leader: whether a line connects it with its point."""

    box: Box
    leader: bool


def place_labels(
    points: Floats, sizes: Sequence[tuple[float, float]], bounds: Box, radius: float = 3.0
) -> list[Label | None]:
    """A place for each label, in their order, or None if there is no room; deterministic.

    Args:
        points: [N, 2], in pixels.
        sizes: width and height of the labels of the first len(sizes) points; the other points have none.
        bounds: labels stay inside it.
        radius: of a point as drawn.

    Raises: nothing.
    """
    placed: list[Label | None] = []
    taken = np.hstack([points - radius, points + radius])  # the points, then the labels
    leaders = np.empty((0, 4))
    for point, size in zip(points, sizes, strict=False):
        label = _first_free(point, size, bounds, radius, taken, taken[len(points) :], leaders)
        placed.append(label)
        if label is not None:
            taken = np.vstack([taken, label.box])
            if label.leader:
                leaders = np.vstack([leaders, [*point, *nearest_in(label.box, point)]])
    return placed


def _first_free(
    point: Floats,
    size: tuple[float, float],
    bounds: Box,
    radius: float,
    taken: Floats,
    labels: Floats,
    leaders: Floats,
) -> Label | None:
    """The nearest free place around a point, trying the angles in their order."""
    for distance, angle in itertools.product(DISTANCES, ANGLES):
        box = _box_at(point, size, distance + radius, angle)
        inside = box.left >= bounds.left and box.right <= bounds.right
        if not (inside and box.bottom >= bounds.bottom and box.top <= bounds.top) or _overlaps_any(box, taken):
            continue
        if any(_touched(np.array([box]), line[:2], line[2:]).any() for line in leaders):
            continue
        leader = distance >= LEADER_FROM
        if not (leader and _touched(labels, point, nearest_in(box, point)).any()):
            return Label(box, leader)
    return None


def _box_at(point: Floats, size: tuple[float, float], distance: float, angle: float) -> Box:
    """The label's box whose nearest side or corner is at that distance and angle from the point."""
    width, height = size
    across, up = math.cos(angle), math.sin(angle)
    x = point[0] + across * distance + math.copysign(width / 2, across) * min(1.0, abs(across) * 1.5)
    y = point[1] + up * distance + math.copysign(height / 2, up) * min(1.0, abs(up) * 1.5)
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _overlaps_any(box: Box, boxes: Floats) -> bool:
    left, bottom, right, top = boxes.T
    return bool(((left < box.right) & (right > box.left) & (bottom < box.top) & (top > box.bottom)).any())


def nearest_in(box: Box, point: Floats) -> Floats:
    """The point of a box that is nearest to a point outside it."""
    return np.clip(point, box[:2], box[2:])


def _touched(boxes: Floats, start: Floats, end: Floats) -> npt.NDArray[np.bool_]:
    """Which boxes a line from start to end touches: it is clipped to each along both axes (Liang and Barsky)."""
    enter, leave = np.zeros(len(boxes)), np.ones(len(boxes))
    for axis in range(2):
        low, high = boxes[:, axis] - start[axis], boxes[:, axis + 2] - start[axis]
        step = end[axis] - start[axis]
        if step == 0:
            leave = np.where((low > 0) | (high < 0), -1.0, leave)
            continue
        enter = np.maximum(enter, np.minimum(low / step, high / step))
        leave = np.minimum(leave, np.maximum(low / step, high / step))
    return enter <= leave


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
