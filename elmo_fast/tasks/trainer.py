"""Training of a tagger or classifier: Adam, early stopping on the development score, resuming after a kill."""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmo_fast._io.atomic_file import write_text
from elmo_fast._io.atomic_folder import read_folder, write_folder
from elmo_fast._io.fields import changes, read_json
from elmo_fast._runtime.progress import METRICS_FILE, Progress, duration
from elmo_fast.checkpoints.safetensors_folder import read_tensor_file, write_tensors
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.tasks.config import MAY_CHANGE, MAY_MOVE, TaskConfig
from elmo_fast.tasks.data import Labels, Split, epoch_batches, fixed_batches
from elmo_fast.tasks.model import TaskModel, input_digests
from elmo_fast.tasks.scores import Scores, tag_scores


class Prediction(NamedTuple):
    """The labels of a sentence: one for each word or, of a classifier, one."""

    labels: list[str]
    """the best labels"""
    probabilities: Tensor | None = None
    """the probability of every label, [words, K], of a classifier [K], on the CPU; None if not asked for"""

    @property
    def label(self) -> str | None:
        """A classifier's label; None of a sentence without words."""
        return self.labels[0] if self.labels else None


@torch.no_grad()
def predict(
    model: TaskModel,
    split: Split,
    labels: Labels,
    batch_size: int,
    progress: Progress | None = None,
    *,
    probabilities: bool = False,
) -> list[Prediction]:
    """Return the prediction for each sentence, in the order of the split; the model is then in evaluation mode."""
    model.eval()
    predictions, done, device = [Prediction([])] * len(split.examples), 0, next(model.parameters()).device
    for indices in fixed_batches(split.lengths, batch_size):
        batch = split.batch(indices, device)
        scores = model(batch)
        shares = model.head.probabilities(scores, batch.lengths) if probabilities else [None] * len(indices)
        for index, ids, share in zip(indices, model.head.decode(scores, batch.lengths), shares, strict=True):
            predictions[index] = Prediction(labels.of_ids(ids), None if share is None else share.cpu())
        done += len(indices)
        if progress is not None:
            progress(done, len(split.examples))
    return predictions


# Names of a fine-tuned biLM's parameters begin with this.
BILM_PREFIX = "elmo.trained_bilm."
# The folder of the state after the last epoch, and its files.
STATE, TENSORS_FILE, POSITION_FILE = "training", "training.safetensors", "position.json"


@dataclasses.dataclass
class TrainingRecord:
    """How far a run is: a row per epoch, the fields that must not change, a digest of sentences and input files."""

    epochs: list[dict[str, Any]]
    config: dict[str, Any]
    data: str


def trained_weights(model: nn.Module, *, with_bilm: bool = True) -> dict[str, Tensor]:
    """Return the parameters that training changes, by name; only these are saved. with_bilm: those of a biLM too."""
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    return {name: each for name, each in trained.items() if with_bilm or not name.startswith(BILM_PREFIX)}


@torch.no_grad()
def load_weights(parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Load `weights` into the parameters of the same names; CheckpointError lists those that do not fit."""
    expected, stored = ({name: each.shape for name, each in some.items()}.items() for some in (parameters, weights))
    if wrong := sorted({name for name, _ in expected ^ stored}):
        what = "missing, left over or of another shape"
        raise CheckpointError(f"{os.fspath(path)}: is not of this configuration; {what}: {', '.join(wrong)}")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])


@dataclasses.dataclass(eq=False)
class TaskTrainer:
    """Trains a TaskModel until the development score has not risen for `patience` epochs, or all epochs are done.

    Each epoch draws its order and its dropout from (seed, epoch) alone, and the state after it is saved: a run that was
    killed resumes with the same numbers, on the CPU bit for bit.

    spans: whether F1 of spans or the accuracy chooses the epoch; folder: for the state and metrics.jsonl; report: takes
    a line per epoch; progress: called with how many of an epoch's sentences are done, and all.

    epochs: a row for each epoch that is done: epoch, loss (mean over words, or over a classifier's sentences, with the
    mixes' penalty), score (F1 or accuracy), accuracy, best (no earlier one scored as much), seconds, train_seconds,
    words_per_second.
    """

    model: TaskModel
    labels: Labels
    train: Split
    dev: Split
    config: TaskConfig
    spans: bool
    folder: pathlib.Path
    report: Callable[[str], None]
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Create the optimiser."""
        task, config = trained_weights(self.model, with_bilm=False), self.config
        bilm = [each for name, each in trained_weights(self.model).items() if name not in task]
        rates = [(list(task.values()), config.learning_rate), (bilm, config.elmo_learning_rate)]
        self.optimiser = torch.optim.Adam([{"params": some, "lr": rate} for some, rate in rates if some], fused=True)
        self.epochs: list[dict[str, Any]] = []
        self._best: dict[str, Tensor] = {}
        may_differ = (*MAY_CHANGE, *MAY_MOVE)
        self._lasting = {name: value for name, value in config.flat().items() if name not in may_differ}
        digest = hashlib.sha256("".join(json.dumps(split.examples) for split in (self.train, self.dev)).encode())
        self._data = " ".join([digest.hexdigest(), *input_digests(config, self.model).values()])

    def fit(self) -> None:
        """Train to the end; the model then has the weights of the best epoch."""
        self._resume()
        patience = self.config.patience or math.inf
        while (done := len(self.epochs)) < self.config.epochs and done - self.best_epoch < patience:
            self._epoch(done)
        load_weights(trained_weights(self.model), self._best, self.folder)

    @property
    def best_epoch(self) -> int:
        """The epoch with the best score so far, from 1; 0 before the first."""
        return max((row["epoch"] for row in self.epochs if row["best"]), default=0)

    def _resume(self) -> None:
        """Load the state in the folder, if any; ElmoFastError if it is damaged, or of other settings or data."""
        path = self.folder / STATE
        if not (self.config.resume and path.exists()):
            return

        def read(folder: pathlib.Path) -> tuple[dict[str, Tensor], TrainingRecord]:
            return read_tensor_file(folder / TENSORS_FILE)[0], read_json(folder / POSITION_FILE, TrainingRecord)

        advice = "start over with --resume false, or remove {folder}"
        tensors, record = read_folder(path, [TENSORS_FILE, POSITION_FILE], read, advice, warns=True)
        if (other := changes(record.config, self._lasting)) or record.data != self._data:
            what = "; ".join(other) or "the sentences of train_path or dev_path, or what model or vectors hold"
            advice = "give another save_dir, or start over with --resume false"
            raise ElmoFastError(f"save_dir {self.folder} holds a run of other settings ({what}); {advice}")
        parts: dict[str, dict[str, Tensor]] = {"weights": {}, "best": {}}
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            parts.setdefault(kind, {})[name] = tensor
        load_weights(trained_weights(self.model), parts.pop("weights"), path)
        self.epochs, self._best = record.epochs, parts.pop("best")
        for name, each in trained_weights(self.model).items():
            state = {kind: part[name].to(each.device) for kind, part in parts.items() if name in part}
            self.optimiser.state[each] = state
        self._write_metrics()  # a process killed right after it saved the state has not
        self.report(f"goes on after epoch {len(self.epochs)} in {self.folder}")

    def _epoch(self, epoch: int) -> None:
        began = time.monotonic()
        torch.manual_seed(self.config.seed * 1_000_003 + epoch + 1)
        loss = self.train_epoch(epoch)
        trained = time.monotonic() - began
        scores = self.scores(self.dev)
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
        self.report(
            f"epoch {epoch + 1:3d} of {self.config.epochs} | loss {loss:.4f} | dev "
            f"{'F1' if scores.spans else 'accuracy'} {100 * scores.f1:.2f} (best {100 * max(before, scores.f1):.2f}) | "
            f"{row['words_per_second']:,.0f} words/s | {duration(row['seconds'])}"
        )

    def scores(self, split: Split) -> Scores:
        """Return the model's scores on a split."""
        gold = [each.labels for each in split.examples]
        predicted = [each.labels for each in predict(self.model, split, self.labels, self.config.batch_size)]
        return tag_scores(gold, predicted, spans=self.spans)

    def train_epoch(self, epoch: int) -> float:
        """One pass over the training sentences, in the order of that epoch (from 0); the mean loss."""
        self.model.train()
        device = next(self.model.parameters()).device
        total, weight, done = 0.0, 0, 0
        for indices in epoch_batches(self.train.lengths, self.config.batch_size, self.config.seed, epoch):
            batch = self.train.batch(indices, device)
            loss = self.model.loss(self.model(batch), batch)
            self.optimiser.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(trained_weights(self.model).values(), self.config.grad_clip)
            if not torch.isfinite(norm):
                what = f"epoch {epoch + 1}: the gradient is not finite (loss {float(loss.detach())})"
                raise ElmoFastError(f"{what}; give a smaller learning_rate or elmo_learning_rate")
            self.optimiser.step()
            size = int(batch.lengths.sum()) if self.train.per_word else len(indices)
            total, weight, done = total + float(loss.detach()) * size, weight + size, done + len(indices)
            if self.progress is not None:
                self.progress(done, len(self.train.examples))
        return total / weight

    def _write(self) -> None:
        """Write weights, the optimiser's tensors, the best weights and the record to a folder; then the rows."""
        weights = trained_weights(self.model)
        tensors = {f"weights/{name}": each for name, each in weights.items()}
        tensors |= {f"best/{name}": each for name, each in self._best.items()}
        for name, each in weights.items():
            state = self.optimiser.state[each]
            tensors |= {f"{kind}/{name}": torch.as_tensor(value, device="cpu") for kind, value in state.items()}
        record = TrainingRecord(self.epochs, self._lasting, self._data)
        with write_folder(self.folder / STATE) as new:
            write_tensors(new / TENSORS_FILE, tensors)
            (new / POSITION_FILE).write_text(json.dumps(dataclasses.asdict(record)), encoding="utf-8")
        self._write_metrics()

    def _write_metrics(self) -> None:
        write_text(self.folder / METRICS_FILE, "".join(json.dumps(row) + "\n" for row in self.epochs))
