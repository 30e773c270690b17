"""Ctrl-C as a request: the current step is finished before the run stops."""

import signal
import threading
from types import FrameType, TracebackType


class StopRequest:
    """While open, the first SIGINT or SIGTERM only sets `signal`; a second one interrupts at once.

    Outside the main thread, where Python delivers no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
