"""What a run reports: lines of text, metrics.jsonl, TensorBoard; only one of several processes writes."""

import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any

from elmo_fast.errors import ElmoFastError, install_command, sentence_of
from elmo_fast.json_files import METRICS_FILE
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.log.metrics import MetricsFile


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
        self._board: TensorBoard | None = None
        if tensorboard and not silent:
            self._board = TensorBoard(folder / "tensorboard", step)
        # The step of the last evaluation in the file, -1 if there is none.
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

    def __exit__(self, *error: object) -> None:
        for each in (self._metrics, self._board):
            if each is not None:
                each.close()

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


class TensorBoard:
    """Writes what metrics.jsonl gets for TensorBoard too, as scalars over the steps: train/loss, heldout/perplexity ...

    folder: where the event files go, created with the first row; step: of the checkpoint that the run resumes from:
    later values are purged.
    Raises ElmoFastError when the package tensorboard is absent.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ElmoFastError(
                f"writing for TensorBoard needs its package ({error}): {install_command('tb')}"
            ) from error
        purge_step = None if step is None else step + 1
        self._open = functools.partial(SummaryWriter, os.fspath(folder), purge_step=purge_step)
        self._writer: Any = None

    def write(self, row: dict[str, Any]) -> None:
        """Sends the numbers of a report or of an event "heldout"; other events have no scalars."""
        event = row.get("event")
        if event in (None, "heldout"):
            self._writer = self._writer or self._open()
            for name, value in row.items():
                if name not in ("event", "step") and isinstance(value, int | float):
                    self._writer.add_scalar(f"{event or 'train'}/{name}", value, row["step"])

    def close(self) -> None:
        """Brings everything written to the disk."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
