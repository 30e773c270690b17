"""Progress of a task."""

import sys
from typing import Any

from elmo_fast.cli._common import logger


class Bar:
    """A bar of sentences on a terminal, nothing elsewhere; lines appear above it."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def __call__(self, done: int, total: int) -> None:
        """Sets the number of sentences that are done."""
        if not self._shown:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit="", unit_scale=True, dynamic_ncols=True, leave=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._close()

    def say(self, line: str) -> None:
        """Prints a line."""
        self._close()
        logger().info(line)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
