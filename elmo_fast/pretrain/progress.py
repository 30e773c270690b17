"""What a run says of itself: one line for people, one row of metrics.jsonl for programs."""

import json
import math
import pathlib
import time
from typing import Any

from elmo_fast.pretrain.step import StepResult


def duration(seconds: float) -> str:
    """Seconds in words: 45s, 12m05s, 3h07m."""
    whole = max(0, math.ceil(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


class Progress:
    """Averages over the steps since the last report, and the time left.

    total_steps: steps the run will take if no time runs out; max_seconds: its time, or None; words_per_step: B·T,
    a word that both directions read counting once.
    """

    def __init__(self, total_steps: int, max_seconds: float | None, words_per_step: int) -> None:
        self.total_steps, self.max_seconds, self.words_per_step = total_steps, max_seconds, words_per_step
        self.step = 0
        self._results: list[StepResult] = []
        self.start()

    def start(self) -> None:
        """Sets the clock to zero."""
        self._started = self._reported = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the run started."""
        return time.monotonic() - self._started

    @property
    def since_report(self) -> float:
        """Seconds since the last report, or since the start."""
        return time.monotonic() - self._reported

    @property
    def has_news(self) -> bool:
        """Whether a step was taken since the last report."""
        return bool(self._results)

    def add(self, result: StepResult) -> None:
        """Counts one step."""
        self.step += 1
        self._results.append(result)

    def seconds_left(self) -> float:
        """At the mean speed so far, to the last step or to the end of the time, whichever comes first."""
        left = (self.total_steps - self.step) * self.seconds / max(self.step, 1)
        return left if self.max_seconds is None else max(0.0, min(left, self.max_seconds - self.seconds))

    def report(self) -> dict[str, Any]:
        """The averages since the last report, which then starts anew; losses: nats per word of the sampled softmax."""
        steps, span = len(self._results), self.since_report
        forward, backward, norm = (
            sum(map(float, column)) / steps for column in list(zip(*self._results, strict=True))[:3]
        )
        self._results, self._reported = [], time.monotonic()
        loss = (forward + backward) / 2
        return {
            "step": self.step,
            "seconds": round(self.seconds, 3),
            "words": self.step * self.words_per_step,
            "words_per_second": steps * self.words_per_step / span,
            "loss": loss,
            "loss_forward": forward,
            "loss_backward": backward,
            "sampled_perplexity": math.exp(min(loss, 700.0)),
            "gradient_norm": norm,
        }

    def line(self, row: dict[str, Any]) -> str:
        """One report as a line of text."""
        share = max(self.step / self.total_steps, self.seconds / self.max_seconds if self.max_seconds else 0.0)
        return (
            f"step {row['step']:>6} ({min(share, 1.0):6.1%}) | loss {row['loss']:6.3f} | sampled train perplexity "
            f"{row['sampled_perplexity']:8.1f} | gradient norm {row['gradient_norm']:6.2f} | "
            f"{row['words_per_second']:8,.0f} tokens/s | {duration(self.seconds_left())} left"
        )


class MetricsFile:
    """metrics.jsonl: one JSON object per line, each handed to the system at once; what is there already is kept."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def __enter__(self) -> "MetricsFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, **row: Any) -> None:
        """Appends one row."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
