"""Labels stand where nothing else does, and are left out where there is no room."""

import numpy as np
import pytest

from elmo_fast.pictures.words import DISTANCES, LEADER_FROM, RADIUS, Box, place_labels

BOUNDS = Box(0, 0, 400, 300)


def crowd(count, seed=0, spread=60.0):
    points = np.random.default_rng(seed).normal((200, 150), spread, (count, 2))
    return np.clip(points, 5, (395, 295))


def meets(one, other):
    return one.left < other.right and other.left < one.right and one.bottom < other.top and other.bottom < one.top


@pytest.mark.parametrize("seed", range(5))
def test_no_label_covers_another_or_a_point_or_leaves_the_picture(seed):
    """Every pair is looked at; the crowd is so dense that some labels are left out and some stand far off."""
    points = crowd(70, seed)
    labels = place_labels(points, [(30 + 5 * (i % 4), 10) for i in range(70)], BOUNDS)
    placed = [label for label in labels if label is not None]
    assert 20 < len(placed) < 70
    assert any(label.leader for label in placed)
    for i, label in enumerate(placed):
        assert not any(meets(label.box, other.box) for other in placed[:i])
        covered = [Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in points]
        assert not any(meets(label.box, point) for point in covered)
        assert label.box.left >= 0
        assert label.box.bottom >= 0
        assert label.box.right <= 400
        assert label.box.top <= 300


@pytest.mark.parametrize("seed", range(6))
def test_leader_lines_cross_no_label(seed):
    """Points along each line lie in no box, that of a label placed later included."""
    points = crowd(70, seed, 45.0)
    labels = place_labels(points, [(36, 10)] * 70, BOUNDS)
    boxes = [label.box for label in labels if label is not None]
    lines = 0
    for point, label in zip(points, labels, strict=True):
        if label is None or not label.leader:
            continue
        lines += 1
        end = np.clip(point, (label.box.left, label.box.bottom), (label.box.right, label.box.top))
        for share in np.linspace(0, 0.98, 50):
            x, y = point + share * (end - point)
            others = [box for box in boxes if box != label.box]
            assert not any(b.left < x < b.right and b.bottom < y < b.top for b in others)
    assert lines > 3


def test_a_lonely_point_has_its_label_at_its_right():
    (label,) = place_labels(np.array([[200.0, 150.0]]), [(40, 10)], BOUNDS)
    assert label.box == pytest.approx((200 + RADIUS + DISTANCES[0], 145, 240 + RADIUS + DISTANCES[0], 155))
    assert not label.leader
    assert DISTANCES[0] < LEADER_FROM


def test_the_first_words_come_first_and_it_is_the_same_every_time():
    """Of points in one place the first has the best place; the last has none."""
    points = np.full((60, 2), 150.0) + np.linspace(0, 0.01, 60)[:, None]
    labels = place_labels(points, [(60, 12)] * 60, BOUNDS)
    assert labels[0].box.left > 150
    assert labels[-1] is None
    assert labels == place_labels(points, [(60, 12)] * 60, BOUNDS)
    assert place_labels(points, [], BOUNDS) == []
