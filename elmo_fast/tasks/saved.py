"""A trained task: its result, and its folder, written when training has ended and read for scores and predictions."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import write_json
from elmo_fast.json_files import Kind, parsed, read_json, typed
from elmo_fast.manifest import MANIFEST, check_written, settle, warn_unchecked, writing_together
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.labels import Labels
from elmo_fast.tasks.model import TaskModel, empty_model, input_digests
from elmo_fast.tasks.scores import Scores
from elmo_fast.tasks.state import load_tensors, load_weights, save_tensors, trained_weights

CONFIG_FILE, RESULTS_FILE, MODEL_FILE = "config.json", "results.json", "model.safetensors"
LABELS_FILE, WORDS_FILE = "labels.json", "words.json"
_READ = (CONFIG_FILE, LABELS_FILE, WORDS_FILE, MODEL_FILE)


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """The result of training.

    dev, test: scores of the kept epoch; test is None without a test_path
    epochs: a row per epoch (see TaskTrainer)
    best_epoch: the kept epoch, from 1
    mix_weights: place ("input", "output") -> the softmax of the mix's weights, one number per layer of the biLM, lowest
        first; empty without ELMo
    gammas: place -> the mix's γ
    config: the configuration
    seconds: of all epochs
    words, sentences: of the training sentences that were used
    parameters: number of trained parameters
    notes: what a reader of the scores must know, such as labels that did not occur in training
    """

    dev: Scores
    test: Scores | None
    epochs: list[dict[str, Any]]
    best_epoch: int
    mix_weights: dict[str, list[float]]
    gammas: dict[str, float]
    config: TaskConfig
    seconds: float
    words: int
    sentences: int
    parameters: int
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class SavedTask:
    """A trained model, the configuration it was trained with, and its labels."""

    model: TaskModel
    config: TaskConfig
    labels: Labels


def save_task(folder: pathlib.Path, model: TaskModel, labels: Labels, result: TaskResult) -> None:
    """Writes what load_task and people read, all together, with a manifest."""
    weights = {name: each.detach().cpu().contiguous() for name, each in trained_weights(model).items()}
    inputs = json.dumps(input_digests(result.config, model))
    flat = result.config.flat()
    paths = {name: os.path.abspath(flat[name]) for name in ("model", "vectors") if flat[name] is not None}
    with writing_together(folder) as new:
        labels.save(new.folder / LABELS_FILE)
        write_json(new.folder / WORDS_FILE, model.words if result.config.vectors is None else [])
        save_tensors(new.folder / MODEL_FILE, weights, {"task": result.config.task, "inputs": inputs})
        write_json(new.folder / CONFIG_FILE, flat | paths)
        write_json(new.folder / RESULTS_FILE, result.as_dict())


def load_task(save_dir: str | os.PathLike[str], device: torch.device | str = "cpu") -> SavedTask:
    """Loads the trained task of a folder, ready to predict.

    Raises ElmoFastError if a file is missing, damaged, or changed after it was written.
    """
    folder = pathlib.Path(save_dir)
    settle(folder)
    flat = _of_task(folder, CONFIG_FILE, dict[str, Any])
    if "task" not in flat:  # a biLM's folder has a config.json as well
        raise ElmoFastError(f"{folder} holds no trained task; give the --save_dir of `elmo-fast task train`")
    if not check_written(folder, _READ):
        warn_unchecked(folder, _READ)
    config = typed(flat, TaskConfig, str(folder / CONFIG_FILE))
    for name in ("model", "vectors"):
        path = getattr(config, name)
        if path is not None and not os.path.exists(path) and not (name == "model" and config.elmo == "none"):
            raise ElmoFastError(
                f"{folder} was trained with {name} {path!r}, which is not there; put it back, or name its new place in "
                f"{folder / CONFIG_FILE} and remove {MANIFEST} beside it"
            )
    labels = Labels.load(folder / LABELS_FILE)
    model = empty_model(config, len(labels), _of_task(folder, WORDS_FILE, list[str]))
    weights, told = load_tensors(folder / MODEL_FILE)
    found = input_digests(config, model)
    for name, digest in parsed(told.get("inputs", "{}"), dict[str, str], f"{folder / MODEL_FILE}: inputs").items():
        if found.get(name) != digest:
            raise ElmoFastError(
                f"{folder} was trained with other {name}: what {getattr(config, name, None)!r} holds has changed since;"
                f" put back what was there, or name its place in {folder / CONFIG_FILE} and remove {MANIFEST} beside it"
            )
    load_weights(model, weights, folder / MODEL_FILE)
    return SavedTask(model.to(device).eval(), config, labels)


def _of_task(folder: pathlib.Path, name: str, kind: type[Kind]) -> Kind:
    if not (folder / name).exists():
        raise ElmoFastError(f"{folder} holds no trained task: it has no {name}")
    return read_json(folder / name, kind)
