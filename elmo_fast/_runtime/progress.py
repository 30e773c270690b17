"""Progress of long-running functions, for a caller, as text and in a file; and requests to stop one."""

import math
import signal
import threading
from collections.abc import Callable
from typing import Any

Progress = Callable[[int, int], None]
"""Called with how much is done, and the total."""

# What a run of training appends to, one JSON object a line.
METRICS_FILE = "metrics.jsonl"


def duration(seconds: float) -> str:
    """Seconds, rounded up, as 0.3s, 45s, 12m05s or 3h07m."""
    if seconds < 10:
        return f"{max(0, math.ceil(10 * seconds - 1e-9)) / 10:g}s"
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class StopRequest:
    """While open, the first SIGINT or SIGTERM only sets `signal` to its number; a second one interrupts at once.

    Outside the main thread, where Python delivers no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
