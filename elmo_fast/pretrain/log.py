"""What a run reports, from one of its processes: averages over steps as lines of text, metrics.jsonl, TensorBoard."""

import contextlib
import errno
import json
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from elmo_fast._runtime.progress import METRICS_FILE, duration
from elmo_fast.errors import require, sentence_of
from elmo_fast.pretrain.checkpoint import RunPosition
from elmo_fast.pretrain.evaluate import perplexity
from elmo_fast.pretrain.metrics import keep_until
from elmo_fast.pretrain.step import StepResult


class TrainingProgress:
    """Averages over the steps since the last report, and the time left.

    total_steps: steps the run will take if no time runs out; max_seconds: of this process, or None; perplexity_name:
    what exp of the loss is called in the reports, None where the loss says nothing of a perplexity.

    step: taken in all; words: read in all, one that both directions read counting once; reported: the last report's
    time and that of later pauses, which the next one's tokens/s do not count.
    """

    def __init__(
        self,
        total_steps: int,
        max_seconds: float | None,
        perplexity_name: str | None = "sampled_perplexity",
    ) -> None:
        self.total_steps, self.max_seconds, self.perplexity_name = total_steps, max_seconds, perplexity_name
        self.step, self.words, self._first_step, self._before = 0, 0, 0, 0.0
        self._results: list[Sequence[float | Tensor]] = []
        self._words, self._waited = 0, 0.0
        self.start()

    def resume(self, at: RunPosition) -> None:
        """Continue from what earlier processes of the run have done."""
        self.step, self.words, self._first_step, self._before = at.step, at.words, at.step, at.seconds
        self._results = list(at.unreported)

    def start(self) -> None:
        """Set the clock of this process to zero."""
        self._started = self.reported = time.monotonic()

    @property
    def session_seconds(self) -> float:
        """Seconds of training in this process."""
        return time.monotonic() - self._started

    @property
    def seconds(self) -> float:
        """Seconds of training in all processes of the run."""
        return self._before + self.session_seconds

    def add(self, result: StepResult, words: int, waited: float = 0.0) -> None:
        """Count one step. words: read in it; waited: seconds that it waited for its data."""
        self.step += 1
        self.words += words
        self._words += words
        self._waited += waited
        self._results.append(result[:3])

    @property
    def unreported(self) -> list[list[float]]:
        """Losses and norm of each step since the last report; of steps on a GPU each is read once."""
        numbers = [[float(each) for each in result] for result in self._results]
        self._results = list(numbers)
        return numbers

    def report(self, *, partial: bool = False) -> dict[str, Any]:
        """Return the averages over the steps since the last report, as a row of metrics.jsonl.

        partial: the next report averages over these steps too.
        """
        steps = len(self._results)
        forward, backward, norm = (sum(column) / steps for column in zip(*self.unreported, strict=True))
        span = max(time.monotonic() - self.reported, 1e-9)  # without pauses
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
        if not partial:
            self._results, self.reported = [], time.monotonic()
            self._words, self._waited = 0, 0.0
        return row

    def line(self, row: dict[str, Any]) -> str:
        """One report as a line of text."""
        seconds, limit = self.session_seconds, self.max_seconds
        share = max(self.step / self.total_steps, seconds / limit if limit else 0.0)
        # To the last step, at the mean speed of this process, or to the end of the time, whichever comes first.
        left = (self.total_steps - self.step) * seconds / max(self.step - self._first_step, 1)
        left = left if limit is None else max(0.0, min(left, limit - seconds))
        memory, perplexity = row.get("memory_bytes"), ""
        if self.perplexity_name is not None:
            perplexity = f"{self.perplexity_name.replace('_', ' ')} {min(row[self.perplexity_name], 1e9):8.1f} | "
        return (
            f"step {row['step']:>6} ({min(share, 1.0):6.1%}) | loss {row['loss']:6.3f} | {perplexity}"
            f"gradient norm {row['gradient_norm']:6.2f} | "
            f"{row['words_per_second']:8,.0f} tokens/s | "
            + (f"memory {memory / 2**30:.2f} GiB | " if memory else "")
            + f"data {row['data_wait']:.1%} | {duration(left)} left"
        )


# Called with the step, and figures by their names, such as "train/loss" and "heldout/perplexity".
OnMetrics = Callable[[int, dict[str, float]], object]


class RunLog(contextlib.AbstractContextManager["RunLog"]):
    """The log of one run.

    folder: of the run; say: takes each line for people; position: of the checkpoint that the run resumes from. Rows of
    metrics.jsonl that the resumed run will write again are removed: those of later steps, reports on steps that it does
    not count as reported, and evaluations that it does not know. tensorboard: write for TensorBoard too; on_metrics:
    takes step and figures of each row on training and each evaluation; writes: false where another process does.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        say: Callable[[str], None] = print,
        position: RunPosition | None = None,
        *,
        tensorboard: bool = False,
        on_metrics: OnMetrics | None = None,
        writes: bool = True,
    ) -> None:
        self.folder, self.say, self._on_metrics, self._cut = folder, say, on_metrics if writes else None, False
        self._file: Any = None
        self._board: Any = None
        if not writes:
            return
        path, step, last = folder / METRICS_FILE, 0, dict[str | None, int]()
        resumes = position is not None or path.exists()
        if position is not None:
            step = position.step
            last = {None: step - len(position.unreported), "heldout": position.best.last}
        if path.exists() and (aside := keep_until(path, step, last)) is not None:
            warnings.warn(
                f"{METRICS_FILE} holds lines that are not whole rows: set aside as {aside}; the whole rows stay, and "
                "the run continues",
                stacklevel=3,
            )
        if tensorboard:
            require("tensorboard", "tb", "writing for TensorBoard")
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if resumes else None)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        if resumes:
            self.write(event="resume", step=step)

    def __exit__(self, *error: object) -> None:
        for each in (self._file, self._board):
            if each is not None:
                each.close()

    def write(self, **row: Any) -> None:
        """Write a row; one without an event is of averages over steps. If the disk does not take it, warn."""
        event, step = row.get("event", "train"), row["step"]
        numbers = {name: value for name, value in row.items() if name != "step" and isinstance(value, int | float)}
        figures = {f"{event}/{name}": value for name, value in numbers.items() if event in ("train", "heldout")}
        try:
            if self._file is not None:
                line = ("\n" * self._cut + json.dumps(row) + "\n").encode()
                self._cut = True  # unless the disk takes the row whole
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
                self._cut = False
            if self._board is not None:
                for name, value in figures.items():
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            # A row is not worth a run; checkpoints keep what counts.
            warnings.warn(f"not written to {METRICS_FILE}: {sentence_of(error)}; training continues", stacklevel=3)
        if figures and self._on_metrics is not None:
            self._on_metrics(step, figures)
