"""An epoch of a tagger's training, one thread: over a frozen ELMo from the disk cache, and over static vectors of the
same width; the same tagger, sentences and order.

Of the static vectors' file every twentieth word is missing, as some words of a treebank are in any published file; the
vector of unknown words is trained, so that the gradient goes down to the features, as it does to ELMo's mix. The last
side knows every word: its gradient ends at the BiLSTM.

What the layers hold does not matter to the time: they are those of a biLM with random weights and few cells.
"""

import functools
import pathlib
import tempfile
from typing import Any

import numpy as np
import torch

from benchmarks import texts
from benchmarks.cases import Settings
from benchmarks.results import Report, Row, faster, measure
from benchmarks.timing import seconds
from elmo_fast.static import Vectors, save_vectors
from elmo_fast.tasks import Example, TaskConfig, write_examples
from elmo_fast.tasks.data import read_data, training_splits
from elmo_fast.tasks.model import new_model
from elmo_fast.tasks.trainer import TaskTrainer
from tests.weights import make_weights

GOAL = 1 / 1.3
TAGS = 17  # of Universal Dependencies
# Width 2D of ELMo's layers -> the biLM's D: the published "small" and the original.
WIDTHS = {"width 256": 128, "width 1024": 512}
TAGGER = {
    "tagger": "BiLSTM of 256 cells per direction, one layer, softmax over 17 tags, batches of 32, dropout 0.5",
    "ELMo": "mix of 3 layers at the input, dropout 0.5",
}
ELMO, STATIC, ALL_KNOWN = "frozen ELMo, from the cache", "static vectors", "static vectors, every word known"


def run(settings: Settings) -> Report:
    """Rows of the seconds of an epoch."""
    torch.set_num_threads(1)
    text = texts.many_lines(settings.text, 64 if settings.quick else 500)
    report = Report(notes={"text": text.source, "words": f"{sum(map(len, text.sentences)):,}", **TAGGER})
    with tempfile.TemporaryDirectory(prefix="elmo-fast-") as name:
        folder = pathlib.Path(name)
        write(text.sentences, folder)
        for variant, size in WIDTHS.items():
            report.rows += compared(variant, size, folder, settings.quick)
    return report


def write(sentences: list[list[str]], folder: pathlib.Path) -> None:
    """The sentences with a tag per word; and per width, random vectors of all words, and of 19 of 20, and a biLM."""
    tagged = [Example(words, [f"T{hash_of(word) % TAGS}" for word in words]) for words in sentences]
    write_examples(folder / "train.conll", tagged)
    write_examples(folder / "dev.conll", tagged[:8])
    words = sorted({word for sentence in sentences for word in sentence})
    for size in WIDTHS.values():
        matrix = np.random.default_rng(0).standard_normal((len(words), 2 * size), np.float32)
        save_vectors(Vectors(words, matrix), folder / f"{ALL_KNOWN} {size}.safetensors")
        known = [row for row in range(len(words)) if row % 20]
        save_vectors(Vectors([words[row] for row in known], matrix[known]), folder / f"{STATIC} {size}.safetensors")
        make_weights(folder / f"bilm{size}", cell=32, proj=size)


def hash_of(word: str) -> int:
    """A number of a word that is the same in every process."""
    return int.from_bytes(word.encode()[-3:], "little")


def trainer(folder: pathlib.Path, size: int, side: str) -> TaskTrainer:
    """A trainer over ELMo or over static vectors of width 2 x `size`."""
    features: dict[str, Any] = {"vectors": str(folder / f"{side} {size}.safetensors")}
    if side == ELMO:
        features = {"elmo": "input", "model": str(folder / f"bilm{size}"), "word_dim": 0}
    config = TaskConfig(
        train_path=str(folder / "train.conll"), dev_path=str(folder / "dev.conll"), save_dir=str(folder / "run"),
        hidden=256, **features,
    )  # fmt: skip
    data = read_data(config)
    torch.manual_seed(0)
    model = new_model(config, len(data.labels), data.train)
    silent = lambda line: None  # noqa: E731
    splits = training_splits(config, data, model.elmo, silent)
    return TaskTrainer(model, data.labels, splits["train"], splits["dev"], config, folder, silent)


def compared(variant: str, size: int, folder: pathlib.Path, quick: bool) -> list[Row]:
    """The rows of one width: an epoch of each side in turn."""
    epochs = {side: functools.partial(trainer(folder, size, side).train_epoch, 0) for side in (ELMO, STATIC, ALL_KNOWN)}
    sides = {side: functools.partial(seconds, epoch) for side, epoch in epochs.items()}
    rows = measure(variant, sides, 2 if quick else 7, unit="s")
    faster(rows[0], rows[1], goal=GOAL)
    faster(rows[1], rows[2])
    return rows
