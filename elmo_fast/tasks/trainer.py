"""Training of a tagger or classifier: Adam, early stopping on the development score, resuming after a kill."""

import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast.durations import duration
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_text
from elmo_fast.json_files import METRICS_FILE
from elmo_fast.progress import Progress
from elmo_fast.tasks.config import MAY_CHANGE, TaskConfig
from elmo_fast.tasks.data import Split, digest_of, epoch_batches
from elmo_fast.tasks.labels import Labels
from elmo_fast.tasks.model import TaskModel, input_digests
from elmo_fast.tasks.prediction import predict, score
from elmo_fast.tasks.state import TrainingRecord, load_weights, read_state, trained_weights, write_state


class TaskTrainer:
    """Trains a TaskModel until the development score has not risen for `patience` epochs, or all epochs are done.

    Each epoch draws its order and its dropout from (seed, epoch) alone, and the state after it is saved: a run that was
    killed resumes with the same numbers, on the CPU bit for bit.

    Args:
        model: on its device.
        train, dev: splits with the labels' numbers.
        folder: for the state and metrics.jsonl.
        report: takes a line per epoch, for people.
        progress: called with how many of an epoch's sentences are done, and all.

    epochs: a row for each epoch that is done: epoch, loss (mean over words, or over a classifier's sentences, with the
    mixes' penalty), score (F1 or accuracy), accuracy, best (no earlier one scored as much), seconds, train_seconds,
    words_per_second.
    """

    def __init__(
        self,
        model: TaskModel,
        labels: Labels,
        train: Split,
        dev: Split,
        config: TaskConfig,
        folder: pathlib.Path,
        report: Callable[[str], None],
        progress: Progress | None = None,
    ) -> None:
        self.model, self.labels, self.train, self.dev, self.config = model, labels, train, dev, config
        self.folder, self.report, self.progress = folder, report, progress
        self.optimiser = adam(model, config)
        self.epochs: list[dict[str, Any]] = []
        self._best: dict[str, Tensor] = {}
        self._data = " ".join([digest_of(train, dev), *input_digests(config, model).values()])

    def fit(self) -> None:
        """Trains to the end; the model then has the weights of the best epoch."""
        self._resume()
        while not self.ended:
            self._epoch(len(self.epochs))
        load_weights(trained_weights(self.model), self._best, self.folder)

    @property
    def ended(self) -> bool:
        """Whether all epochs are done, or patience is."""
        patience = self.config.patience
        return len(self.epochs) >= self.config.epochs or bool(patience and self._since_best() >= patience)

    def _since_best(self) -> int:
        best = max((row["epoch"] for row in self.epochs if row["best"]), default=len(self.epochs))
        return len(self.epochs) - best

    def _resume(self) -> None:
        if not self.config.resume:
            return
        found = read_state(self.folder, self.model, self.optimiser, self._check)
        if found is not None:
            self.epochs, self._best = found[0].epochs, found[1]
            self.report(f"goes on after epoch {len(self.epochs)} in {self.folder}")

    def _check(self, position: TrainingRecord) -> None:
        """Raises ElmoFastError if the state in the folder is of another run."""
        had, now = position.config, lasting(self.config)
        other = [f"{name}: {had.get(name)!r}, now {now[name]!r}" for name in now if had.get(name) != now[name]]
        if not other and position.data != self._data:
            other = ["the sentences of train_path or dev_path, or what model or vectors hold"]
        if other:
            raise ElmoFastError(
                f"save_dir {self.folder} holds a run of other settings ({'; '.join(other)}); give another save_dir, or "
                "resume: false to begin anew"
            )

    def _epoch(self, epoch: int) -> None:
        began = time.monotonic()
        torch.manual_seed(self.config.seed * 1_000_003 + epoch + 1)
        loss = self.train_epoch(epoch)
        trained = time.monotonic() - began
        scores = score(self.dev, predict(self.model, self.dev, self.labels, self.config.batch_size), self.labels)
        before = max((row["score"] for row in self.epochs), default=-math.inf)
        row = {
            "epoch": epoch + 1,
            "loss": loss,
            "score": scores.f1,
            "accuracy": scores.accuracy,
            "best": scores.f1 > before,
            "seconds": round(time.monotonic() - began, 3),
            "train_seconds": round(trained, 3),
            "words_per_second": round(self.train.words / max(trained, 1e-9), 1),
        }
        self.epochs.append(row)
        if row["best"]:
            self._best = {name: each.detach().clone() for name, each in trained_weights(self.model).items()}
        self._write()
        self._say(row, "F1" if scores.spans else "accuracy", max(before, scores.f1))

    def train_epoch(self, epoch: int) -> float:
        """One pass over the training sentences, in the order of that epoch (from 0); the mean loss."""
        self.model.train()
        device = next(self.model.parameters()).device
        total, weight, done = 0.0, 0, 0
        for indices in epoch_batches(self.train.lengths, self.config.batch_size, self.config.seed, epoch):
            batch = self.train.batch(indices, device)
            loss = self.model.loss(self.model(batch), batch)
            self._step(loss, epoch)
            size = int(batch.lengths.sum()) if self.train.per_word else len(indices)
            total, weight, done = total + float(loss.detach()) * size, weight + size, done + len(indices)
            if self.progress is not None:
                self.progress(done, len(self.train.examples))
        return total / weight

    def _step(self, loss: Tensor, epoch: int) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(trained_weights(self.model).values(), self.config.grad_clip)
        if not torch.isfinite(norm):
            raise ElmoFastError(
                f"epoch {epoch + 1}: the gradient is not finite (loss {float(loss.detach())}); give a smaller "
                "learning_rate or elmo_learning_rate"
            )
        self.optimiser.step()

    def _write(self) -> None:
        position = TrainingRecord(self.epochs, lasting(self.config), self._data)
        write_state(self.folder, self.model, self.optimiser, self._best, position)
        write_text(self.folder / METRICS_FILE, "".join(json.dumps(row) + "\n" for row in self.epochs))

    def _say(self, row: dict[str, Any], unit: str, best: float) -> None:
        self.report(
            f"epoch {row['epoch']:3d} of {self.config.epochs} | loss {row['loss']:.4f} | dev {unit} "
            f"{100 * row['score']:.2f} (best {100 * best:.2f}) | {row['words_per_second']:,.0f} words/s | "
            f"{duration(row['seconds'])}"
        )


def adam(model: TaskModel, config: TaskConfig) -> torch.optim.Adam:
    """Adam (Kingma and Ba 2015) over what is trained; a fine-tuned biLM has its own learning rate."""
    own = {id(parameter) for parameter in model.bilm_parameters()}
    weights = list(trained_weights(model).values())
    task = [each for each in weights if id(each) not in own]
    bilm = [each for each in weights if id(each) in own]
    groups = [{"params": task, "lr": config.learning_rate}, {"params": bilm, "lr": config.elmo_learning_rate}]
    return torch.optim.Adam([group for group in groups if group["params"]], fused=True)


def lasting(config: TaskConfig) -> dict[str, Any]:
    """The fields that must not change when a run is resumed."""
    return {name: value for name, value in config.flat().items() if name not in MAY_CHANGE}
