"""Progress of a long command: a bar on a terminal, lines for a log file."""

import sys
import time
from typing import Any, Self

from elmo_fast.cli._common import logger
from elmo_fast.progress import duration

SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """Counts tokens and shows the share done, tokens/s and the time left.

    total: total number of tokens
    unit: what is counted, if not tokens
    lines: write a line every ten seconds (--file_friendly_logging); otherwise a bar, only on a terminal
    quiet: show nothing
    stays: whether the bar stays on the terminal when it is complete
    """

    def __init__(
        self, total: int = 0, *, lines: bool = False, quiet: bool = False, unit: str = "tokens", stays: bool = True
    ) -> None:
        self.total, self.done, self._unit, self._stays = total, 0, unit, stays
        self._short = "tok" if unit == "tokens" else unit
        self.start = self._said = time.monotonic()
        self._lines = lines and not quiet
        self._shown = not lines and not quiet and sys.stderr.isatty()
        self._bar: Any = None
        if total and self._shown:
            self._draw()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def add(self, tokens: int) -> None:
        """Adds `tokens` to what is done."""
        self.reach(self.done + tokens, self.total)

    def reach(self, done: int, total: int) -> None:
        """Sets what is done."""
        if done < self.done:  # of something else
            self.__exit__()
        self.done, self.total = done, total
        if self._shown:
            self._draw()
        elif self._lines and (time.monotonic() - self._said >= SECONDS_BETWEEN_LINES or done == total):
            self._said = time.monotonic()
            logger().info("%s", self._line(100 * done // max(total, 1)))

    def say(self, line: str) -> None:
        """A line above the bar, which begins anew."""
        self.__exit__()
        logger().info("%s", line)

    def _draw(self) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(unit=self._short, unit_scale=True, dynamic_ncols=True, leave=self._stays)
        self._bar.total = self.total
        self._bar.update(self.done - self._bar.n)

    def _line(self, share: int) -> str:
        done = f"{self.done} of {self.total} {self._unit} ({share}%)"
        return f"{done} | {int(self.rate)} {self._short}/s | {self.left} left"

    @property
    def left(self) -> str:
        """The time until all is done, as text."""
        return duration((self.total - self.done) / max(self.rate, 1e-9))

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.start

    @property
    def rate(self) -> float:
        """Tokens per second since the start."""
        return self.done / max(self.seconds, 1e-9)


def progress_bar(arguments: Any, total: int = 0, **look: Any) -> ProgressBar:
    """A bar as --quiet and, where a command has it, --file_friendly_logging want it; look: unit, stays."""
    lines = getattr(arguments, "file_friendly_logging", False)
    return ProgressBar(total, lines=lines, quiet=arguments.quiet, **look)


class TextProgressBar(ProgressBar):
    """Shows how much of a text is read, and words/s; called with the bytes done, all bytes, and the words so far."""

    def __init__(self, *, lines: bool = False, quiet: bool = False) -> None:
        super().__init__(lines=lines, quiet=quiet, unit="B")
        self._words = 0

    def __call__(self, done: int, total: int, words: int) -> None:
        self._words = words
        self.reach(done, total)

    def _draw(self) -> None:
        super()._draw()
        self._bar.set_postfix_str(f"{self._words / max(self.seconds, 1e-9) / 1e6:.1f}M words/s", refresh=False)

    def _line(self, share: int) -> str:
        rate = int(self._words / max(self.seconds, 1e-9))
        return f"{self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB ({share}%) | {rate} words/s | {self.left} left"
