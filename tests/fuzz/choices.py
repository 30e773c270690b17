"""A random generator whose numbers hypothesis chooses, which can therefore make a failing case smaller."""

import random
from collections.abc import Callable

Below = Callable[[int], int]  # n -> a number from 0 up to, but not including, n


class Choices(random.Random):
    """random.Random on top of `below`. Zeros lead to the first element of a choice and to the usual branch."""

    def __new__(cls, below: Below) -> "Choices":
        return super().__new__(cls)

    def __init__(self, below: Below) -> None:
        super().__init__(0)
        self._randbelow = below  # randrange, choice, sample and shuffle come down to it

    def getrandbits(self, bits: int) -> int:
        return self._randbelow(1 << bits)

    def random(self) -> float:
        """A number from 0 up to, but not including, 1; of 20 bits, as hypothesis prefers small ones of a larger range.

        Unlikely branches are `random() < 0.03` in the targets, so the simplest choice is the number next to 1.
        """
        return 1 - (self._randbelow(1 << 20) + 1) * 2.0**-20
