"""What functions that take long tell their caller."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""
