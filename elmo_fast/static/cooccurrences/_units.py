"""The whole numbers in which weights are added, so that neither order nor threads change a sum."""

import math

UNITS = 2**28
LARGEST_WINDOW = 255


def scale_of(window: int, distance_weighting: bool) -> int:
    """What a weight of 1 is: the least common multiple of all distances (exact, to a window of 20), at most 2^28."""
    return min(math.lcm(*range(1, window + 1)), UNITS) if distance_weighting else 1


def weights_of(window: int, distance_weighting: bool) -> list[int]:
    """The weight of each distance from 1 in units of 1 / scale, rounded beyond a window of 20 (by 2e-9 at most)."""
    scale = scale_of(window, distance_weighting)
    return [round(scale / distance) if distance_weighting else 1 for distance in range(1, window + 1)]


def most_words(window: int, distance_weighting: bool) -> int:
    """From how many words on a sum might exceed 2^63."""
    return 2**63 // (2 * sum(weights_of(window, distance_weighting)))
