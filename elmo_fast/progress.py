"""Progress of long-running functions: for a caller, as text, and in a file."""

import math
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done, and the total."""

# What a run of training appends to, one JSON object a line.
METRICS_FILE = "metrics.jsonl"


def duration(seconds: float) -> str:
    """Seconds, rounded up, as 45s, 12m05s or 3h07m."""
    whole = max(0, math.ceil(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
