"""How long-running functions report progress."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done, and the total."""
