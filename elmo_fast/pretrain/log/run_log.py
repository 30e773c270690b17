"""What a run reports: lines of text, metrics.jsonl, TensorBoard; only one of several processes writes."""

import pathlib
from collections.abc import Callable
from types import TracebackType
from typing import Any

from elmo_fast.errors import sentence_of
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.log.metrics_file import METRICS_FILE, MetricsFile


class RunLog:
    """The log of one run.

    folder: of the run; report: takes each line for people; step: of the checkpoint to resume from, None for a
    new one; unreported: steps before it that no report has averaged; tensorboard: whether to write for TensorBoard too;
    silent: say and write nothing (another process does).
    """

    def __init__(
        self,
        folder: pathlib.Path,
        report: Callable[[str], None] = print,
        *,
        step: int | None = None,
        unreported: int = 0,
        tensorboard: bool = False,
        silent: bool = False,
    ) -> None:
        self.folder, self._report, self._silent = folder, report, silent
        self._metrics = None if silent else MetricsFile(folder / METRICS_FILE, step, unreported)
        self._board: Any = None
        if tensorboard and not silent:
            from elmo_fast.pretrain.log.tensorboard import TensorBoard

            self._board = TensorBoard(folder / "tensorboard")
        # The step of the last evaluation that is on record, -1 where there is none.
        self.evaluated_at = -1 if self._metrics is None else self._metrics.evaluated_at
        if self._metrics is not None and (aside := self._metrics.set_aside) is not None:
            self.say(
                f"WARNING {METRICS_FILE} holds lines that are not whole rows: set aside as {aside}; the whole "
                "rows stay, and the run continues"
            )
        if step is not None:
            self._write(event="resume", step=step)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._metrics, self._board):
            if each is not None:
                each.__exit__(kind, value, trace)

    def say(self, line: str) -> None:
        """One line for people."""
        if not self._silent:
            self._report(line)

    def step(self, row: dict[str, Any], line: str) -> None:
        """The averages since the last row."""
        self._write(**row)
        self.say(line)

    def saved(self, path: pathlib.Path, step: int, seconds: float, took: float) -> None:
        """A checkpoint; seconds: of training; took: seconds that training waited for it."""
        self._write(event="checkpoint", step=step, seconds=seconds, path=str(path), took=round(took, 3))
        self.say(f"saved  {path} after step {step} ({took:.1f} s)")

    def heldout(self, perplexity: Perplexity, step: int, words: int) -> None:
        """An evaluation; words: trained on so far."""
        self._write(
            event="heldout",
            step=step,
            words=words,
            perplexity=perplexity.mean,
            perplexity_forward=perplexity.forward,
            perplexity_backward=perplexity.backward,
        )
        self.say(f"eval   step {step} | held-out perplexity {perplexity}")

    def _write(self, **row: Any) -> None:
        try:
            if self._metrics is not None:
                self._metrics.write(**row)
            if self._board is not None:
                self._board.write(row)
        except OSError as error:
            # A row is not worth a run; checkpoints keep what counts.
            self.say(f"NOT WRITTEN to {METRICS_FILE}: {sentence_of(error)}; training continues")
