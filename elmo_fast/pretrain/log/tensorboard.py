"""The rows of metrics.jsonl as TensorBoard's scalars."""

import os
from types import TracebackType
from typing import Any

from elmo_fast.errors import ElmoFastError


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
                f'writing for TensorBoard needs its package: pip install "elmo-fast[tb]" ({error})'
            ) from error
        self._make, self._folder = SummaryWriter, os.fspath(folder)
        self._step = step
        self._writer: Any = None

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, row: dict[str, Any]) -> None:
        """Sends the numbers of a report or of an event "heldout"; an event "resume" tells the step that the run resumes
        from; other events have no scalars."""
        event = row.get("event")
        if event == "resume":
            self.close()
            self._step = row["step"]
        elif event in (None, "heldout"):
            writer = self._opened()
            for name, value in row.items():
                if name not in ("event", "step") and isinstance(value, int | float):
                    writer.add_scalar(f"{event or 'train'}/{name}", value, row["step"])

    def _opened(self) -> Any:
        if self._writer is None:
            self._writer = self._make(self._folder, purge_step=None if self._step is None else self._step + 1)
        return self._writer

    def close(self) -> None:
        """Brings everything written to the disk."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
