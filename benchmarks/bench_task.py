"""An epoch of a tagger over a frozen ELMo from the disk cache, and over static vectors of the same width, one thread.

Of the static vectors' file every twentieth word is missing, as some words of a treebank are in any published file; the
vector of unknown words is trained, so the gradient reaches the features, as it reaches ELMo's mix. The last side knows
every word: its gradient ends at the BiLSTM. The layers come from a biLM with random weights and few cells.
"""

import functools
from typing import Any

import numpy as np
import pytest
import torch

from elmo_fast.static import Vectors, save_vectors
from elmo_fast.tasks import Example, TaskConfig, write_examples
from elmo_fast.tasks.data import read_data, training_splits
from elmo_fast.tasks.model import TaskModel
from elmo_fast.tasks.trainer import TaskTrainer
from tests.support.weights import make_weights

TAGS = 17  # of Universal Dependencies
WIDTHS = {"width 256": 128, "width 1024": 512}  # 2D of the layers -> D
ELMO, STATIC, ALL_KNOWN = "frozen ELMo, from the cache", "static vectors", "static vectors, every word known"


@pytest.fixture(scope="module")
def trainers(text, quick, tmp_path_factory):
    """A cached function of (width, side)."""
    folder, text = tmp_path_factory.mktemp("task"), text.repeated(64 if quick else 500)
    tagged = [
        Example(words, [f"T{int.from_bytes(word.encode()[-3:], 'little') % TAGS}" for word in words])
        for words in text.sentences
    ]
    write_examples(folder / "train.conll", tagged)
    write_examples(folder / "dev.conll", tagged[:8])
    words = sorted({word for sentence in text.sentences for word in sentence})
    for size in WIDTHS.values():
        matrix = np.random.default_rng(0).standard_normal((len(words), 2 * size), np.float32)
        save_vectors(Vectors(words, matrix), folder / f"{ALL_KNOWN} {size}.safetensors")
        known = [row for row in range(len(words)) if row % 20]
        save_vectors(Vectors([words[row] for row in known], matrix[known]), folder / f"{STATIC} {size}.safetensors")
        make_weights(folder / f"bilm{size}", cell=32, proj=size)

    @functools.cache
    def trainer(width, side):
        size = WIDTHS[width]
        features: dict[str, Any] = {"vectors": str(folder / f"{side} {size}.safetensors")}
        if side == ELMO:
            features = {"elmo": "input", "model": str(folder / f"bilm{size}"), "word_dim": 0}
        config = TaskConfig(
            train_path=str(folder / "train.conll"), dev_path=str(folder / "dev.conll"), save_dir=str(folder / "run"),
            hidden=256, **features,
        )  # fmt: skip
        data = read_data(config)
        torch.manual_seed(0)
        model = TaskModel(config, len(data.labels), data.train)
        silent = lambda line: None  # noqa: E731
        splits = training_splits(config, data, model.elmo, silent)
        return TaskTrainer(model, data.labels, splits["train"], splits["dev"], config, data.spans, folder, silent)

    return trainer


@pytest.mark.turns(7)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("side", [ELMO, STATIC, ALL_KNOWN])
def bench_epoch(timed, trainers, width, side, turn):
    timed.note("tagger", "BiLSTM of 256 cells, one layer, softmax over 17 tags, batches of 32, dropout 0.5")
    trainer = trainers(width, side)
    timed(width, lambda: trainer.train_epoch(0), amount=1, unit="s", warmup=int(turn == 0), against=STATIC)
