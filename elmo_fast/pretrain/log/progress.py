"""The progress of a run: a line of text, and a row of metrics.jsonl."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from elmo_fast.durations import duration
from elmo_fast.memory import resident
from elmo_fast.pretrain.evaluate import perplexity
from elmo_fast.pretrain.step.training_step import StepResult
from elmo_fast.pretrain.training_state import RunPosition


def memory_in_use(device: torch.device) -> int | None:
    """Bytes: the most a GPU has held, or the memory of this process; None where it is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident()


class TrainingProgress:
    """Averages over the steps since the last report, and the time left.

    total_steps: steps the run will take if no time runs out; max_seconds: of this process, or None; perplexity_name:
    what exp of the loss is called in the reports, None where the loss says nothing of a perplexity.

    step: taken in all; words: read in all, one that both directions read counting once.
    """

    def __init__(
        self,
        total_steps: int,
        max_seconds: float | None,
        perplexity_name: str | None = "sampled_perplexity",
    ) -> None:
        self.total_steps, self.max_seconds, self.perplexity_name = total_steps, max_seconds, perplexity_name
        self.step, self.words, self._first_step, self._before = 0, 0, 0, 0.0
        self._results: list[tuple[float | Tensor, float | Tensor, float | Tensor]] = []
        self._words, self._waited, self._away = 0, 0.0, 0.0
        self.start()

    def resume(self, at: RunPosition) -> None:
        """Continues from what earlier processes of the run have done."""
        self.step, self.words, self._first_step, self._before = at.step, at.words, at.step, at.seconds
        self._results = [(forward, backward, norm) for forward, backward, norm in at.unreported]

    def start(self) -> None:
        """Sets the clock of this process to zero."""
        self._started = self._reported = time.monotonic()

    @property
    def sitting(self) -> float:
        """Seconds of training in this process."""
        return time.monotonic() - self._started

    @property
    def seconds(self) -> float:
        """Seconds of training in all processes of the run."""
        return self._before + self.sitting

    @property
    def since_report(self) -> float:
        """Seconds since the last report, or since the start."""
        return time.monotonic() - self._reported

    @property
    def has_news(self) -> bool:
        """Whether a step was taken since the last report."""
        return bool(self._results)

    def add(self, result: StepResult, words: int, waited: float = 0.0) -> None:
        """Counts one step. words: read in it; waited: seconds that it waited for its data."""
        self.step += 1
        self.words += words
        self._words += words
        self._waited += waited
        self._results.append(result[:3])

    @property
    def unreported(self) -> list[list[float]]:
        """Losses and norm of each step since the last report."""
        return [[float(number) for number in result] for result in self._results]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time of the block from the tokens/s of the next report."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._away += time.monotonic() - began

    def seconds_left(self) -> float:
        """To the last step, at the mean speed of this process, or to the end of the time, whichever comes first."""
        left = (self.total_steps - self.step) * self.sitting / max(self.step - self._first_step, 1)
        return left if self.max_seconds is None else max(0.0, min(left, self.max_seconds - self.sitting))

    def report(self) -> dict[str, Any]:
        """The averages since the last report, which are then cleared; losses: nats per word of the training loss."""
        steps = len(self._results)
        forward, backward, norm = (sum(map(float, column)) / steps for column in zip(*self._results, strict=True))
        span = max(self.since_report - self._away, 1e-9)
        loss = (forward + backward) / 2
        row = {
            "step": self.step,
            "seconds": round(self.seconds, 3),
            "words": self.words,
            "words_per_second": self._words / span,
            "loss": loss,
            "loss_forward": forward,
            "loss_backward": backward,
            **({self.perplexity_name: perplexity(loss)} if self.perplexity_name else {}),
            "gradient_norm": norm,
            "data_wait": self._waited / span,
        }
        self._results, self._reported = [], time.monotonic()
        self._words, self._waited, self._away = 0, 0.0, 0.0
        return row

    def _perplexity(self, row: dict[str, Any]) -> str:
        """The perplexity as text, empty if exp of the loss is none."""
        if self.perplexity_name is None:
            return ""
        kind = "sampled train" if self.perplexity_name == "sampled_perplexity" else "train"
        return f"{kind} perplexity {min(row[self.perplexity_name], 1e9):8.1f} | "

    def line(self, row: dict[str, Any]) -> str:
        """One report as a line of text."""
        share = max(self.step / self.total_steps, self.sitting / self.max_seconds if self.max_seconds else 0.0)
        memory = row.get("memory_bytes")
        return (
            f"step {row['step']:>6} ({min(share, 1.0):6.1%}) | loss {row['loss']:6.3f} | {self._perplexity(row)}"
            f"gradient norm {row['gradient_norm']:6.2f} | "
            f"{row['words_per_second']:8,.0f} tokens/s | "
            + (f"memory {memory / 2**30:.2f} GiB | " if memory else "")
            + f"data {row['data_wait']:.1%} | {duration(self.seconds_left())} left"
        )
