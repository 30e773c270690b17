"""How far a long command is: a bar on a terminal, lines for a log file."""

import sys
import time
from typing import Any

from elmo_fast.cli._common import logger
from elmo_fast.durations import duration

SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """Counts tokens and shows the share done, tokens/s and the time left.

    total: tokens in all
    unit: what is counted, where that is not tokens
    lines: write a line every ten seconds (--file_friendly_logging); else a bar, and that on a terminal only
    quiet: show nothing
    """

    def __init__(self, total: int, *, lines: bool = False, quiet: bool = False, unit: str = "tokens") -> None:
        self.total, self.done, self._unit = total, 0, unit
        self.start = self._said = time.monotonic()
        self._lines = lines and not quiet
        self._bar: Any = None
        if not lines and not quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit=self._short, unit_scale=True, dynamic_ncols=True)

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, tokens: int) -> None:
        """`tokens` more are done."""
        self.done += tokens
        if self._bar is not None:
            self._bar.update(tokens)
        elif self._lines and (time.monotonic() - self._said >= SECONDS_BETWEEN_LINES or self.done == self.total):
            self._said = time.monotonic()
            left = duration((self.total - self.done) / max(self.rate, 1e-9))
            share = 100 * self.done // max(self.total, 1)
            said = "%d of %d %s (%d%%) | %d %s/s | %s left"
            logger().info(said, self.done, self.total, self._unit, share, self.rate, self._short, left)

    def reach(self, done: int, total: int) -> None:
        """`done` of `total` are done now."""
        self.total = total
        if self._bar is not None:
            self._bar.total = total
        self.add(done - self.done)

    @property
    def _short(self) -> str:
        return "tok" if self._unit == "tokens" else self._unit

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.start

    @property
    def rate(self) -> float:
        """Tokens per second since the start."""
        return self.done / max(self.seconds, 1e-9)


class TextProgressBar:
    """Shows how much of a text is read, words/s and the time left; called with bytes done, bytes in all, words so far.

    lines, quiet: as for `ProgressBar`.
    """

    def __init__(self, *, lines: bool = False, quiet: bool = False) -> None:
        self.start = self._said = time.monotonic()
        self._lines, self._shown = lines and not quiet, not lines and not quiet and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> "TextProgressBar":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int, words: int) -> None:
        """So much is done now."""
        rate = words / max(self.seconds, 1e-9)
        if self._shown:
            from tqdm import tqdm

            if self._bar is None:
                self._bar = tqdm(total=total, unit="B", unit_scale=True, dynamic_ncols=True)
            self._bar.set_postfix_str(f"{rate / 1e6:.1f}M words/s", refresh=False)
            self._bar.update(done - self._bar.n)
        elif self._lines and (time.monotonic() - self._said >= SECONDS_BETWEEN_LINES or done == total):
            self._said = time.monotonic()
            left, share = duration(self.seconds * (total - done) / max(done, 1)), 100 * done // max(total, 1)
            said = "%.1f of %.1f MB (%d%%) | %d words/s | %s left"
            logger().info(said, done / 1e6, total / 1e6, share, rate, left)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.start
