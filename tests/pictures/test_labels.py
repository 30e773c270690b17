"""Labels stand where nothing else does, and are left out where there is no room."""

import numpy as np

from elmo_fast.pictures.words import RADIUS, place_labels

BOUNDS = (0, 0, 400, 300)


def crowd(count, seed=0, spread=60.0):
    points = np.random.default_rng(seed).normal((200, 150), spread, (count, 2))
    return np.clip(points, 5, (395, 295))


def meets(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_no_label_covers_another_or_a_point_or_leaves_the_picture():
    """Every pair is looked at; the crowd is so dense that some labels are left out."""
    points = crowd(70)
    labels = place_labels(points, [(30 + 5 * (i % 4), 10) for i in range(70)], BOUNDS)
    placed = [label for label in labels if label is not None]
    assert 20 < len(placed) < 70
    for i, label in enumerate(placed):
        assert not any(meets(label, other) for other in placed[:i])
        covered = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in points]
        assert not any(meets(label, point) for point in covered)
        assert min(label[:2]) >= 0
        assert label[2] <= 400
        assert label[3] <= 300


def test_the_first_words_come_first_and_it_is_the_same_every_time():
    """Of points in one place the first has the best place; the last has none."""
    points = np.full((60, 2), 150.0) + np.linspace(0, 0.01, 60)[:, None]
    labels = place_labels(points, [(60, 12)] * 60, BOUNDS)
    assert labels[0][0] > 150
    assert labels[-1] is None
    assert labels == place_labels(points, [(60, 12)] * 60, BOUNDS)
    assert place_labels(points, [], BOUNDS) == []
