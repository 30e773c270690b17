"""Ctrl-C and SIGTERM as a request, for work that must not be interrupted halfway."""

import signal
import threading
from typing import Any


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
