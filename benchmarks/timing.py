"""Times several sides in turn within one run (A B A B ...), so that what disturbs the machine disturbs them alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call, in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rate(amount: float, call: Callable[[], object]) -> Callable[[], float]:
    """A measurement of how many per second `call` does, of `amount` at a time."""
    return lambda: amount / seconds(call)


def milliseconds(call: Callable[[], object]) -> Callable[[], float]:
    """A measurement of how long `call` takes."""
    return lambda: 1000 * seconds(call)


def in_turn(sides: Mapping[str, Callable[[], float]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """What each side returned (a time or a rate) in each round; every round asks every side once, in order."""
    for _ in range(warmup):
        for measure in sides.values():
            measure()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            taken[name].append(measure())
    return taken


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, interpolated; of one value, that value."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
