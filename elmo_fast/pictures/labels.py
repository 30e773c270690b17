"""Labels beside points that overlap neither each other nor the points: where each goes, or that there is no room."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Directions that are tried around a point, best first: right and left read best, then above, below, and the slopes.
ANGLES = tuple(math.radians(a) for a in (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 202, 338, 68, 112, 248, 292))
DISTANCES = (4.0, 9.0, 16.0, 24.0, 34.0, 46.0)  # from the point to the label, in pixels
LEADER_FROM = 9.0  # labels that far away get a line to their point


class Box(NamedTuple):
    """A rectangle: left, bottom, right, top."""

    left: float
    bottom: float
    right: float
    top: float


class Label(NamedTuple):
    """Where a label stands; leader: whether a line leads from it to its point."""

    box: Box
    leader: bool


def place_labels(
    points: npt.NDArray[np.floating], sizes: Sequence[tuple[float, float]], bounds: Box, radius: float = 3.0
) -> list[Label | None]:
    """A place for each label, first come first served, or None where there is no room; always the same ones.

    Args:
        points: [N, 2], in pixels.
        sizes: width and height of the labels of the first len(sizes) points; the other points have none.
        bounds: no label leaves it.
        radius: of a point as drawn.

    Raises: nothing.
    """
    placed: list[Label | None] = []
    boxes = np.empty((0, 4))
    lines = np.empty((0, 4))
    for number, size in enumerate(sizes):
        label = _first_free(points, number, size, bounds, radius, boxes, lines)
        placed.append(label)
        if label is not None:
            boxes = np.vstack([boxes, label.box])
            if label.leader:
                lines = np.vstack([lines, [*points[number], *_nearest_in(label.box, points[number])]])
    return placed


def _first_free(
    points: npt.NDArray[np.floating],
    number: int,
    size: tuple[float, float],
    bounds: Box,
    radius: float,
    boxes: npt.NDArray[np.floating],
    lines: npt.NDArray[np.floating],
) -> Label | None:
    """The nearest free place around a point, of the angles in their order."""
    x, y = points[number]
    for distance in DISTANCES:
        for angle in ANGLES:
            box = _box_at(x, y, size, distance + radius, angle)
            if not (box.left >= bounds.left and box.right <= bounds.right):
                continue
            if not (box.bottom >= bounds.bottom and box.top <= bounds.top):
                continue
            if _meets_any(box, boxes) or _covers_any(box, points, radius) or _crosses_any(box, lines):
                continue
            leader = distance >= LEADER_FROM
            if leader and _crosses(boxes, (x, y), _nearest_in(box, (x, y))).any():
                continue
            return Label(box, leader)
    return None


def _box_at(x: float, y: float, size: tuple[float, float], distance: float, angle: float) -> Box:
    """The label's box whose nearest side or corner lies at that distance and angle of the point."""
    width, height = size
    across, up = math.cos(angle), math.sin(angle)
    centre_x = x + across * distance + math.copysign(width / 2, across) * min(1.0, abs(across) * 1.5)
    centre_y = y + up * distance + math.copysign(height / 2, up) * min(1.0, abs(up) * 1.5)
    return Box(centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2)


def _meets_any(box: Box, boxes: npt.NDArray[np.floating]) -> bool:
    left, bottom, right, top = boxes.T
    return bool(((left < box.right) & (right > box.left) & (bottom < box.top) & (top > box.bottom)).any())


def _covers_any(box: Box, points: npt.NDArray[np.floating], radius: float) -> bool:
    x, y = points.T
    beside = (x < box.left - radius) | (x > box.right + radius)
    return bool((~(beside | (y < box.bottom - radius) | (y > box.top + radius))).any())


def _nearest_in(box: Box, point: Sequence[float] | npt.NDArray[np.floating]) -> tuple[float, float]:
    """The point of a box's edge that lies nearest to a point outside it."""
    return min(max(point[0], box.left), box.right), min(max(point[1], box.bottom), box.top)


def _crosses(
    boxes: npt.NDArray[np.floating], start: tuple[float, float], end: tuple[float, float]
) -> npt.NDArray[np.bool_]:
    """Which boxes a line from start to end touches: it is clipped to each along both axes (Liang and Barsky)."""
    enter, leave = np.zeros(len(boxes)), np.ones(len(boxes))
    for axis in range(2):
        low, high = boxes[:, axis] - start[axis], boxes[:, axis + 2] - start[axis]
        step = end[axis] - start[axis]
        if step == 0:
            leave = np.where((low > 0) | (high < 0), -1.0, leave)
            continue
        first, second = np.minimum(low / step, high / step), np.maximum(low / step, high / step)
        enter, leave = np.maximum(enter, first), np.minimum(leave, second)
    return enter <= leave


def _crosses_any(box: Box, lines: npt.NDArray[np.floating]) -> bool:
    """Whether a box lies across a leader line that is drawn already."""
    one = np.array([box])
    return any(_crosses(one, (line[0], line[1]), (line[2], line[3]))[0] for line in lines)
