"""A task from end to end: trains a tagger or classifier from a configuration, saves it, scores it, and predicts."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch

from elmo_fast._io.atomic_file import replaces, write_json, writing
from elmo_fast._io.atomic_folder import has_files, read_folder, write_folder
from elmo_fast._io.fields import parsed, read_json
from elmo_fast._io.locks import folder_lock
from elmo_fast._runtime.devices import check_int8_device, device_named
from elmo_fast._runtime.progress import Progress, duration
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.checkpoints import (
    file_beside,
    named_folder,
    pretrained_folder,
    put_model,
    stored_tokenizer,
)
from elmo_fast.checkpoints.safetensors_folder import read_tensor_file, warn_if_rounded, write_tensors
from elmo_fast.errors import ElmoFastError, check_choice, quoted
from elmo_fast.op_choices import Tokenizer
from elmo_fast.tasks.config import Metric, TaskConfig, validate
from elmo_fast.tasks.data import Labels, Split, doubts_about, read_data, read_labelled, scores_spans, training_splits
from elmo_fast.tasks.formats import (
    PER_WORD,
    SUFFIXES,
    Example,
    format_of,
    is_number,
    is_table,
    read_rows,
    write_examples,
    write_predicted_csv,
    write_tagged_conllu,
)
from elmo_fast.tasks.model import TaskModel, input_digests
from elmo_fast.tasks.scores import Scores, tag_scores
from elmo_fast.tasks.trainer import Prediction, TaskTrainer, load_weights, predict, trained_weights
from elmo_fast.text import checked_sentences, rereadable
from elmo_fast.text import tokenizer as tokenizer_of
from elmo_fast.text.sentences import ending
from elmo_fast.text.tokenizers import RAW_TEXT

# A biLM that is fine-tuned or copied lies beside them as any model does: config.json, model.safetensors, vocab.txt.
CONFIG_FILE, RESULTS_FILE, MODEL_FILE = "task.json", "results.json", "task.safetensors"
LABELS_FILE, WORDS_FILE = "labels.json", "words.json"
Device = torch.device | str
Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """The result of training.

    dev, test: scores of the kept epoch; test is None without a test_path
    epochs: a row per epoch (see TaskTrainer)
    best_epoch: the kept epoch, from 1
    mix_weights: where ("input", "output") -> the softmax of the mix's weights, one number per layer of the biLM, lowest
        first; empty without ELMo
    gammas: where -> the mix's γ
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

    def predict(
        self,
        sentences: Sequence[Any],
        *,
        tokenizer: Tokenizer | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> list[list[str]] | list[str | None]:
        """Label sentences: a list of a tag for each word or, of a classifier, the one label.

        Args:
            sentences: raw strings, which the tokenizer splits, or lists of words; two of them for each pair of a
                classifier of pairs. One without words has no tags or, of a classifier, the label None, with a warning.
            tokenizer: "whitespace", "basic", "spacy" or "logs"; None: as training split its sentences, or "basic" if
                it read words.
            batch_size: sentences per batch; None: as in training.
            progress: called with how many sentences are done, and all.

        Raises: ElmoFastError: a sentence that is neither; one string for the list.
        """
        predictions = self.predictions(self.examples(sentences, tokenizer), batch_size, progress)
        if self.config.task == "tag":
            return [each.labels for each in predictions]
        return [each.label for each in predictions]

    def predict_proba(
        self,
        sentences: Sequence[Any],
        *,
        tokenizer: Tokenizer | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> list[npt.NDArray[np.float32]]:
        """Return the probability of every label, in the order of `labels.names`; arguments and errors as in `predict`.

        Each sentence has an array [words, K] or, of a classifier, [K], which are NaN for a sentence without words, with
        a warning. A CRF's are marginal probabilities; it predicts the likeliest sequence, in which a tag need not be
        the likeliest.
        """
        count, examples = len(self.labels), self.examples(sentences, tokenizer)
        without_words = torch.full((count,) if self.config.task == "classify" else (0, count), torch.nan, device="cpu")
        found = self.predictions(examples, batch_size, progress, probabilities=True)
        return [(without_words if each.probabilities is None else each.probabilities).numpy() for each in found]

    def has_words(self, example: Example) -> bool:
        """Return whether the sentence or, of a pair, both texts have words."""
        return bool(len(example.words) and (self.config.pair_column is None or len(example.second)))

    def split(
        self, sentences: Sequence[str | Sequence[str]], tokenizer: Tokenizer | None = None
    ) -> list[Sequence[str]]:
        """Return the words of each sentence; arguments and errors as in `predict`."""
        config = self.config
        read_words = format_of(config.train_path, config.format) in PER_WORD
        name = tokenizer or config.tokenizer or (RAW_TEXT if read_words else "whitespace")
        return list(checked_sentences(sentences, split=tokenizer_of(name)))

    def examples(self, sentences: Sequence[Any], tokenizer: Tokenizer | None = None) -> list[Example]:
        """Return the sentences or pairs as words, without labels; arguments, warnings and errors as in `predict`."""
        if self.config.pair_column is None:
            examples = [Example(list(words), []) for words in self.split(sentences, tokenizer)]
            for index, (words, *_) in enumerate(examples):
                if len(words) == 2 and all(len(word.split()) > 1 for word in words):
                    why = "as the task was not trained on pairs"
                    raise ElmoFastError(f"sentences[{index}] must be one text, {why}; got {quoted(words)}")
        else:
            sentences = list(sentences)  # zip(premises, hypotheses) can be read only once
            for index, pair in enumerate(sentences):
                if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
                    raise ElmoFastError(
                        f"sentences[{index}] must be two texts, as the task was trained on pairs; got {quoted(pair)}"
                    )
            texts = (self.split([pair[i] for pair in sentences], tokenizer) for i in (0, 1))
            examples = [Example(list(first), [], list(second)) for first, second in zip(*texts, strict=True)]
        empty = [index for index, each in enumerate(examples) if not self.has_words(each)]
        if empty and self.config.task == "classify":
            which = f"{len(empty)} of {len(examples)} sentences have no words, the first is sentences[{empty[0]}]"
            warnings.warn(f"{which}: their label is None, their probabilities are NaN", stacklevel=3)
        return examples

    def predictions(
        self,
        examples: Sequence[Example],
        batch_size: int | None = None,
        progress: Progress | None = None,
        *,
        probabilities: bool = False,
    ) -> list[Prediction]:
        """Return the prediction for each example, whose labels do not matter; arguments as in `predict`."""
        split = Split(list(filter(self.has_words, examples)), None, per_word=self.config.task == "tag")
        size = batch_size or self.config.batch_size
        with torch_threads(self.config.threads):
            found = iter(predict(self.model, split, self.labels, size, progress, probabilities=probabilities))
        return [next(found) if self.has_words(each) else Prediction([]) for each in examples]

    def as_dict(self, example: Example, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction for JSON: words, a tag for each and its probability; of a classifier those of all.

        Without words there are no tags, and a classifier's values are None.
        """
        shares = prediction.probabilities
        if self.config.task == "classify":
            values = [None] * len(self.labels) if shares is None else shares.tolist()
            every = dict(zip(self.labels.names, values, strict=True))
            second = {} if self.config.pair_column is None else {"second": list(example.second)}
            return {"words": example.words, **second, "label": prediction.label, "probabilities": every}
        rows = [] if shares is None else shares.tolist()
        chosen = [row[number] for row, number in zip(rows, self.labels.ids(prediction.labels), strict=True)]
        return {"words": example.words, "labels": prediction.labels, "probabilities": chosen}


def save_task(folder: pathlib.Path, model: TaskModel, labels: Labels, result: TaskResult) -> None:
    """Write what load_task and people read, all together, with a manifest; a fine-tuned or copied biLM is a model."""
    config, flat = result.config, result.config.flat()
    # What is no path is the name of a model; see _with_paths.
    named = [name for name in ("model", "vectors", "save_dir") if flat[name] and os.path.exists(flat[name])]
    paths = {name: os.path.abspath(flat[name]) for name in named}
    about = {"inputs": json.dumps(input_digests(config, model))}
    with write_folder(folder) as new:
        write_json(new / LABELS_FILE, labels.names)
        write_json(new / WORDS_FILE, model.static.words if model.static is not None and config.vectors is None else [])
        write_tensors(new / MODEL_FILE, trained_weights(model, with_bilm=False), about)
        write_json(new / CONFIG_FILE, flat | paths | {"metric": "spans" if result.dev.spans else "labels"})
        write_json(new / RESULTS_FILE, result.as_dict())
        if model.elmo is not None and _holds_bilm(config) and config.model is not None:
            put_model(new, model.elmo.bilm.checkpoint_state(), model.elmo.bilm.options)
            if (vocabulary := file_beside(pretrained_folder(config.model))) is not None:
                shutil.copyfile(vocabulary, new / vocabulary.name)


def _holds_bilm(config: TaskConfig) -> bool:
    """Return whether the folder of a task holds its biLM: it was fine-tuned, or copied."""
    return config.elmo != "none" and (config.fine_tune or config.copy_model)


def load_task(
    save_dir: Path, device: Device = "cpu", *, model: Path | None = None, vectors: Path | None = None
) -> SavedTask:
    """Load the trained task of a folder, ready to predict.

    model, vectors: the biLM (a path or a name) and the static vectors that it was trained with; None: those of
    training, which may have moved together with the folder.
    Raises ElmoFastError if a file is missing, damaged, or changed after it was written.
    """
    folder = pathlib.Path(save_dir)
    if not has_files(folder, CONFIG_FILE):
        raise ElmoFastError(
            f"{folder} holds no trained task: it has no {CONFIG_FILE}; give the --save_dir of `elmo-fast task train`"
        )

    def load(place: pathlib.Path) -> tuple[TaskConfig, Labels, list[str], dict[str, torch.Tensor], dict[str, str]]:
        labels, words = (read_json(place / name, list[str]) for name in (LABELS_FILE, WORDS_FILE))
        return read_json(place / CONFIG_FILE, TaskConfig), Labels(labels), words, *read_tensor_file(place / MODEL_FILE)

    files = (CONFIG_FILE, LABELS_FILE, WORDS_FILE, MODEL_FILE)
    config, labels, words, weights, about = read_folder(folder, files, load, warns=True)
    check_int8_device(config.precision, device_named(device), config.backend)
    config = _with_paths(folder, config, {"model": model, "vectors": vectors}, _holds_bilm(config))
    with torch.device("cpu"):
        task = TaskModel(config, len(labels), words=words)
    digests = input_digests(config, task)
    for name, digest in parsed(about.get("inputs", "{}"), dict[str, str], f"{folder / MODEL_FILE}: inputs").items():
        if digests.get(name) != digest:
            raise ElmoFastError(
                f"{folder} was trained with other {name}: what {getattr(config, name, None)!r} holds has changed since;"
                f" put back what was there, or name what it was trained with by --{name}"
            )
    load_weights(trained_weights(task, with_bilm=False), weights, folder / MODEL_FILE)
    return SavedTask(task.to(device).eval(), config, labels)


def precision_of(save_dir: Path) -> str:
    """Return the precision that a task was trained with; float32 if there is none, which `load_task` reports."""
    if not has_files(save_dir, CONFIG_FILE):
        return "float32"
    return read_folder(save_dir, [CONFIG_FILE], lambda place: read_json(place / CONFIG_FILE, TaskConfig)).precision


def _with_paths(folder: pathlib.Path, config: TaskConfig, paths: dict[str, Path | None], own: bool) -> TaskConfig:
    """Return the configuration with the paths of what the task needs; own: its biLM lies in the folder itself."""
    needed = {"model": config.elmo != "none" and not own, "vectors": config.vectors is not None}
    for name, path in paths.items():
        if path is not None and not needed[name]:
            why = "holds its biLM" if name == "model" and own else f"was trained without {name}"
            raise ElmoFastError(f"leave out --{name}: {folder} {why}")
        if needed[name]:
            stored = getattr(config, name)
            found = _stored_path(folder, config, stored) if path is None else os.fspath(path)
            if not os.path.exists(found) and (name == "vectors" or path is None):
                raise ElmoFastError(
                    f"{folder} was trained with {name} {stored!r}; there is no {found!r}: name its path with --{name}"
                )
            config = dataclasses.replace(config, **{name: found})  # type: ignore[arg-type]
    return dataclasses.replace(config, model=os.fspath(folder), prefix=None) if own else config


def _stored_path(folder: pathlib.Path, config: TaskConfig, stored: str) -> str:
    """Return the path that a task's configuration stores, or the one that its name stands for.

    A path is stored absolute. If it is gone, the one as far from the task's folder now as the old one was in training
    is taken: a project that was moved as a whole. The digest of the content says whether it is the same.
    """
    if not os.path.isabs(stored):
        return os.fspath(named_folder(stored) or stored)
    moved = folder / os.path.relpath(stored, config.save_dir)
    if os.path.exists(stored) or not (os.path.isabs(config.save_dir) and moved.exists()):
        return stored
    return os.path.normpath(moved)


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
    check_int8_device(config.precision, device_named(device), config.backend)
    if config.model is not None and config.elmo == "none":
        advice = "give --elmo input, output or both, or no --model"
        warnings.warn(f"--model {config.model} is not used, because --elmo is none: {advice}", stacklevel=2)
    if config.fine_tune and config.model is not None:
        warn_if_rounded(pretrained_folder(config.model))
    if config.tokenizer is None and config.model is not None and config.elmo != "none":
        config = dataclasses.replace(config, tokenizer=stored_tokenizer(pretrained_folder(config.model)))
    folder = pathlib.Path(config.save_dir)
    data = read_data(config)
    for note in data.notes:
        warnings.warn(note, stacklevel=2)
    with folder_lock(folder), torch_threads(config.threads):
        torch.manual_seed(config.seed)
        with torch.device("cpu"):
            model = TaskModel(config, len(data.labels), data.train)
        model = model.to(device)
        splits = training_splits(config, data, model.elmo, report, progress)
        parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
        report(f"{len(data.train)} sentences, {splits['train'].words} words, {len(data.labels)} labels; "
               f"{parameters:,} weights are trained")  # fmt: skip
        both, elmo = (splits["train"], splits["dev"]), model.elmo
        trainer = TaskTrainer(model, data.labels, *both, config, data.spans, folder, report, progress)
        trainer.fit()
        result = TaskResult(
            dev=trainer.scores(splits["dev"]),
            test=trainer.scores(splits["test"]) if "test" in splits else None,
            epochs=trainer.epochs,
            best_epoch=trainer.best_epoch,
            mix_weights=dict(zip(model.elmo_at, elmo.weights(), strict=True)) if elmo else {},
            gammas=dict(zip(model.elmo_at, elmo.gammas(), strict=True)) if elmo else {},
            config=config,
            seconds=round(sum(row["seconds"] for row in trainer.epochs), 3),
            words=splits["train"].words,
            sentences=len(data.train),
            parameters=parameters,
            notes=data.notes,
        )
        save_task(folder, model, data.labels, result)
        needed = [config.model if config.elmo != "none" and not _holds_bilm(config) else None, config.vectors]
        report(f"to predict, {folder} needs {' and '.join(filter(None, needed)) or 'no other file'}")
    report(f"done in {duration(result.seconds)}: best epoch {result.best_epoch} of {len(result.epochs)}; {folder}")
    return result


def evaluate_task(
    save_dir: Path,
    path: Path,
    *,
    format: str | None = None,
    column: str | int | None = None,
    label_column: str | None = None,
    pair_column: str | None = None,
    metric: Metric | None = None,
    batch_size: int | None = None,
    device: Device = "cpu",
    progress: Progress | None = None,
    model: Path | None = None,
    vectors: Path | None = None,
) -> Scores:
    """Return the scores of a trained model on a file of labelled sentences.

    Args:
        save_dir: the folder that train_task wrote.
        path: the file.
        format, column, label_column, pair_column: as in read_examples; None: as in training.
        metric: "spans" or "labels", or "auto" by the labels of training; None: as in training.
        batch_size: sentences per batch; None: as in training.
        device, progress: as in train_task.
        model, vectors: where the biLM and the static vectors of the task are now; None: where they were in training.

    Raises: ElmoFastError: the folder contains no trained task, or the file does not match it.
    """
    task, path = load_task(save_dir, device, model=model, vectors=vectors), os.fspath(path)
    columns = {"column": column, "label_column": label_column, "pair_column": pair_column}
    asked = _asked(task.config, format=format, metric=metric, **columns)
    check_choice("metric", asked.metric, get_args(Metric))
    if label_column is None and is_number(column):
        asked = dataclasses.replace(asked, label_column=None)
    examples = read_labelled(path, asked)
    spans = scores_spans(asked, Counter(task.labels.names))
    for note in [task.labels.unseen(examples, path), *doubts_about(examples, path, asked, spans=spans)]:
        if note is not None:
            warnings.warn(note, stacklevel=2)
    predicted = task.predictions(examples, batch_size, progress)
    return tag_scores([example.labels for example in examples], [each.labels for each in predicted], spans=spans)


def _asked(config: TaskConfig, **given: Any) -> TaskConfig:
    """Return the configuration with what is given in its place; ElmoFastError for pairs of a task of single texts."""
    if given["pair_column"] is not None and config.pair_column is None:
        raise ElmoFastError(f"pair_column is for a task trained on pairs, not this one; got {given['pair_column']!r}")
    return dataclasses.replace(config, **{name: value for name, value in given.items() if value is not None})


def predict_task(
    save_dir: Path,
    path: Path,
    out: Path,
    *,
    format: str | None = None,
    column: str | int | None = None,
    pair_column: str | None = None,
    tokenizer: Tokenizer | None = None,
    probabilities: bool = False,
    batch_size: int | None = None,
    device: Device = "cpu",
    progress: Progress | None = None,
    model: Path | None = None,
    vectors: Path | None = None,
) -> int:
    """Label the sentences of a file and write them; return how many.

    Result i is that of line i of a text or tsv (of row i of a table): a blank line has an empty result, with a warning.
    That is a blank line in "columns", a tab alone in "tsv", an empty field in CSV, and null or [] in JSON lines.

    Args:
        save_dir: the folder that train_task wrote.
        path: sentences in any format of read_examples; labels in it are ignored.
        out: the file to write, another than `path`: of a tagger "columns" (word<TAB>tag) or, if `path` is CoNLL-U and
            the suffix of `out` names no other format, `path` with other tags in the column of training (upos, if that
            was of another format); of a classifier "tsv" (label<TAB>sentence) or, if it ends in .csv, the table that
            is read with one more column, "predicted" (of another input the columns row and sentence), as always of
            pairs. A name in .jsonl asks for `probabilities`.
        column, pair_column: of a table, the column with the sentences, and that with second texts; None: as in
            training.
        tokenizer: of sentences in "text", "tsv" and tables; None: as in training.
        probabilities: write JSON lines in place of these, an object per sentence: of a tagger `words`, `labels` and the
            `probabilities` of these labels (see SavedTask.predict_proba); of a classifier `words` (of pairs also
            `second`), `label` and the `probabilities` of all labels.
        format, batch_size, device, progress, model, vectors: as in evaluate_task.

    Raises: ElmoFastError: the folder contains no trained task, the file contains no sentence or is `out`, or it is a
    .txt file and no format is given.
    """
    if replaces(out, path):
        raise ElmoFastError(f"out must be another file than the one that is read; got {os.fspath(out)!r} for both")
    if format is None and ending(path) == ".txt":
        raise ElmoFastError(f"{path}: a sentence or a word per line? give --format text or --format columns")
    task, path = load_task(save_dir, device, model=model, vectors=vectors), os.fspath(path)
    config = _asked(task.config, format=format, pair_column=pair_column, tokenizer=tokenizer)
    read_as, trained_as = format_of(path, config.format), format_of(config.train_path, task.config.format)
    to = _format_to_write(out, read_as, config, probabilities)
    if column is not None and read_as in (*PER_WORD, "text"):
        raise ElmoFastError(f"column names the sentences of a table; {path} is read as {read_as}: leave it out")
    # Labels are ignored; in tsv their column says which one has the words.
    names = config.label_column or config.pair_column
    if column is None and read_as not in (*PER_WORD, "text"):
        column = config.column if is_table(trained_as, config.column, names) or trained_as == read_as else None
    named = config.label_column if read_as == trained_as == "tsv" else None
    with rereadable(path) if to == "conllu" else contextlib.nullcontext(path) as file:
        read = read_rows(file, read_as, column, config.tokenizer, named, config.pair_column, False)
        rows = [(example, row if to == "csv" else {}) for example, row in read]
        examples = [example for example, _ in rows]
        if empty := [index + 1 for index, each in enumerate(examples) if not task.has_words(each)]:
            blank = f"{len(empty):,} of {len(examples):,} lines or rows are blank, the first is number {empty[0]:,}"
            warnings.warn(f"{path}: {blank}: the output has an empty result for each", stacklevel=2)
        predictions = task.predictions(examples, batch_size, progress, probabilities=to == "jsonl")
        labels = [each.labels for each in predictions]
        if to == "jsonl":
            with writing(out) as lines:
                for pair in zip(examples, predictions, strict=True):
                    lines.write(json.dumps(task.as_dict(*pair), ensure_ascii=False).encode() + b"\n")
        elif to == "conllu":
            write_tagged_conllu(out, file, config.column if trained_as == "conllu" else None, labels)
        elif to == "csv":
            of_table = [row or {"row": n, "sentence": " ".join(each.words)} for n, (each, row) in enumerate(rows, 1)]
            write_predicted_csv(out, of_table, [each.label for each in predictions])
        else:
            write_examples(out, (Example(each.words, tags) for each, tags in zip(examples, labels, strict=True)), to)
    return len(examples)


def _format_to_write(out: Path, read_as: str, config: TaskConfig, probabilities: bool) -> str:
    """Return the format of predictions. Raises ElmoFastError if the suffix of `out` names one that cannot be."""
    formats = {"jsonl": "jsonl"}  # by the format of the suffix; the last one is that of a name without one
    if config.task == "tag" and not probabilities:
        formats |= {"columns": "columns", "tsv": "columns"} | ({"conllu": "conllu"} if read_as == "conllu" else {})
    elif not probabilities:
        formats |= {"csv": "csv"} | ({} if config.pair_column else {"columns": "tsv", "tsv": "tsv"})
    named = SUFFIXES.get(ending(out)) or [*formats][-1]
    if named not in formats:
        kind = "probabilities" if probabilities else "labels of pairs" if config.pair_column else "labels"
        names = " or ".join(f".{name}".replace("columns", "conll") for name in formats)
        raise ElmoFastError(f"{out}: {kind} of {read_as} input cannot be written as {named}; give a name in {names}")
    return formats[named]
