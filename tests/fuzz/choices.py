"""A random generator that remembers its draws, so that a case can be repeated, and made smaller, from them."""

import random
import time
from collections.abc import Callable, Iterator, Sequence

Draws = list[int]


class Choices(random.Random):
    """random.Random of a seed, or of the draws of another one: zeros where those end, which choose the first of all."""

    def __new__(cls, seed: int | None = None, draws: Sequence[int] = ()) -> "Choices":
        return super().__new__(cls, seed or 0)

    def __init__(self, seed: int | None = None, draws: Sequence[int] = ()) -> None:
        super().__init__(seed or 0)
        self.drawn: Draws = []
        self._given: Iterator[int] | None = iter(draws) if seed is None else None

    def getrandbits(self, bits: int) -> int:
        """Every method of random.Random that draws comes down to this."""
        value = super().getrandbits(bits) if self._given is None else next(self._given, 0) & ((1 << bits) - 1)
        self.drawn.append(value)
        return value

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""
        return self.getrandbits(53) * 2.0**-53


def smaller(draws: Draws, fails: Callable[[Draws], bool], seconds: float = 20) -> Draws:
    """Draws that still fail, fewer and smaller ones: stretches are left out, or become 0, while it does."""
    size, until = max(len(draws) // 2, 1), time.monotonic() + seconds
    while size:
        at = 0
        while at < len(draws) and time.monotonic() < until:
            part = draws[at : at + size]
            if fails(draws[:at] + draws[at + size :]):
                draws = draws[:at] + draws[at + size :]
                continue
            if any(part) and fails(draws[:at] + [0] * len(part) + draws[at + size :]):
                draws = draws[:at] + [0] * len(part) + draws[at + size :]
            at += size
        size //= 2
    return draws
