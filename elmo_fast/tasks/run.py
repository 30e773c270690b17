"""A task from end to end: trains a tagger or classifier from a configuration, scores it, and predicts with it."""

import dataclasses
import os
import pathlib
from collections.abc import Callable

import torch

from elmo_fast.checkpoints import pretrained_folder
from elmo_fast.checkpoints.safetensors_folder import warn_if_rounded
from elmo_fast.durations import duration
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import replaces
from elmo_fast.lock import folder_lock
from elmo_fast.progress import Progress
from elmo_fast.tasks.config import TaskConfig, validate
from elmo_fast.tasks.data import Split, read_data, read_labelled, training_splits
from elmo_fast.tasks.formats import Example, format_of, read_examples, write_examples
from elmo_fast.tasks.model import new_model
from elmo_fast.tasks.prediction import predict, score
from elmo_fast.tasks.saved import TaskResult, load_task, save_task
from elmo_fast.tasks.scores import Scores
from elmo_fast.tasks.trainer import TaskTrainer
from elmo_fast.threads import torch_threads

Device = torch.device | str
Path = str | os.PathLike[str]


def train_task(
    config: TaskConfig,
    report: Callable[[str], None] = print,
    *,
    device: Device = "cpu",
    progress: Progress | None = None,
) -> TaskResult:
    """Trains as configured, or resumes the run in save_dir, and scores the best epoch.

    Leaves in save_dir: task.json, labels.json, words.json, task.safetensors (what was trained), results.json,
    metrics.jsonl (a row per epoch), training.safetensors (to resume a killed run) and the biLM if it was fine-tuned.

    Args:
        config: see TaskConfig.
        report: takes each line for people.
        device: where the model is.
        progress: called with how many of an epoch's sentences are done, and all.

    Raises: ElmoFastError: the configuration, a file, or what save_dir holds does not fit.
    """
    validate(config)
    if config.fine_tune and config.model is not None:
        warn_if_rounded(pretrained_folder(config.model))
    folder = pathlib.Path(config.save_dir)
    data = read_data(config)
    with folder_lock(folder), torch_threads(config.threads):
        report(f"features: {config.features()}")
        for note in data.notes:
            report(note)
        torch.manual_seed(config.seed)
        model = new_model(config, len(data.labels), data.train).to(device)
        splits = training_splits(config, data, model.elmo, report, progress)
        parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
        report(f"{len(data.train)} sentences, {splits['train'].words} words, {len(data.labels)} labels; "
               f"{parameters:,} weights are trained")  # fmt: skip
        trainer = TaskTrainer(model, data.labels, splits["train"], splits["dev"], config, folder, report, progress)
        trainer.fit()
        scores = {
            name: score(split, predict(model, split, data.labels, config.batch_size), data.labels)
            for name, split in splits.items()
            if name != "train"
        }
        result = TaskResult(
            dev=scores["dev"],
            test=scores.get("test"),
            epochs=trainer.epochs,
            best_epoch=max(row["epoch"] for row in trainer.epochs if row["best"]),
            mix_weights=model.mix_weights(),
            gammas=model.gammas(),
            config=config,
            seconds=round(sum(row["seconds"] for row in trainer.epochs), 3),
            words=splits["train"].words,
            sentences=len(data.train),
            parameters=parameters,
            notes=data.notes,
        )
        save_task(folder, model, data.labels, result)
    report(f"done in {duration(result.seconds)}: best epoch {result.best_epoch} of {len(result.epochs)}; {folder}")
    return result


def evaluate_task(
    save_dir: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    column: str | int | None = None,
    batch_size: int | None = None,
    report: Callable[[str], None] = print,
    device: Device = "cpu",
    progress: Progress | None = None,
    model: Path | None = None,
    vectors: Path | None = None,
) -> Scores:
    """The scores of a trained model on a file of labelled sentences.

    Args:
        save_dir: the folder that train_task wrote.
        path: the file.
        format, column: as in read_examples; None: as in training.
        batch_size: sentences per batch; None: as in training.
        report: called with a line about labels that did not occur in training.
        device, progress: as in train_task.
        model, vectors: where the biLM and the static vectors of the task are now; None: where they were in training.

    Raises: ElmoFastError: the folder contains no trained task, or the file does not match it.
    """
    task = load_task(save_dir, device, model=model, vectors=vectors)
    reading = dataclasses.replace(
        task.config,
        format=format or task.config.format,
        column=task.config.column if column is None else column,
    )
    examples = read_labelled(os.fspath(path), reading)
    note = task.labels.unseen(examples, os.fspath(path))
    if note:
        report(note)
    split = Split(examples, None, per_word=task.config.task == "tag")
    predicted = task.predict([example.words for example in examples], batch_size=batch_size, progress=progress)
    return score(split, predicted, task.labels)


def predict_task(
    save_dir: str | os.PathLike[str],
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    batch_size: int | None = None,
    device: Device = "cpu",
    progress: Progress | None = None,
    model: Path | None = None,
    vectors: Path | None = None,
) -> int:
    """Labels the sentences of a file and writes them; returns how many.

    Args:
        save_dir: the folder that train_task wrote.
        path: sentences in any format of read_examples; labels in it are ignored.
        out: the file to write, another than `path`: "columns" (word<TAB>tag) for a tagger, "tsv" (label<TAB>sentence)
            for a classifier.
        format, batch_size, device, progress, model, vectors: as in evaluate_task.

    Raises: ElmoFastError: the folder contains no trained task, the file contains no sentence or is `out`, or it is a
    .txt file and no format is given.
    """
    if replaces(out, path):
        raise ElmoFastError(f"out must be another file than the one that is read; got {os.fspath(out)!r} for both")
    if format is None and os.fspath(path).lower().removesuffix(".gz").endswith(".txt"):
        raise ElmoFastError(
            f"{os.fspath(path)}: a .txt may hold a sentence or a word per line; give --format text or --format columns"
        )
    task = load_task(save_dir, device, model=model, vectors=vectors)
    examples = read_examples(path, format or task.config.format, _column_of_sentences(task.config, path, format))
    words = [example.words for example in examples]
    labelled = list(map(Example, words, task.predict(words, batch_size=batch_size, progress=progress)))
    write_examples(out, labelled, "columns" if task.config.task == "tag" else "tsv")
    return len(labelled)


def _column_of_sentences(config: TaskConfig, path: str | os.PathLike[str], format: str | None) -> str | int | None:
    """The column of labels of a file whose labels are ignored: only in tsv does it say which column has the words."""
    both_tsv = format_of(path, format or config.format) == format_of(config.train_path, config.format) == "tsv"
    return config.column if both_tsv else None
