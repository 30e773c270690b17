"""Places for labels beside points, where they overlap neither each other nor the points."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
