"""The rows of metrics.jsonl as TensorBoard's scalars."""

import os
from types import TracebackType
from typing import Any

from elmo_fast.errors import ElmoFastError


class TensorBoard:
    """Writes what metrics.jsonl gets for TensorBoard too, as scalars over the steps: train/loss, heldout/perplexity ...

    folder: where the event files go, made when the first row comes.
    Raises ElmoFastError when the package tensorboard is absent.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ElmoFastError(
                f'writing for TensorBoard needs its package: pip install "elmo-fast[tb]" ({error})'
            ) from error
        self._make, self._folder = SummaryWriter, os.fspath(folder)
        self._writer: Any = None

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, row: dict[str, Any]) -> None:
        """Sends the numbers of a report or of an event "heldout"; an event "resume" takes back what lies beyond its
        step; other events have no scalars."""
        event = row.get("event")
        if event == "resume":
            self.close()
            self._writer = self._make(self._folder, purge_step=row["step"] + 1)
        elif event in (None, "heldout"):
            self._writer = self._writer or self._make(self._folder)
            for name, value in row.items():
                if name not in ("event", "step") and isinstance(value, int | float):
                    self._writer.add_scalar(f"{event or 'train'}/{name}", value, row["step"])

    def close(self) -> None:
        """Brings everything written to the disk."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
