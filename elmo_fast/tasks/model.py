"""The whole model of a task: features of the words, ELMo where it is wanted, and a tagger or classifier over them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo_fast._io.atomic_file import sha256_of
from elmo_fast.modules.bilm import model_digest
from elmo_fast.op_choices import trained_precision
from elmo_fast.static import Vectors, load_vectors
from elmo_fast.tasks.config import ELMO_AT, TaskConfig
from elmo_fast.tasks.data import TaskBatch
from elmo_fast.tasks.features import CharacterFeatures, ElmoFeatures, StaticFeatures, load_bilm
from elmo_fast.tasks.formats import Example, texts_of
from elmo_fast.tasks.heads import Classifier, Tagger


class TaskModel(nn.Module):
    """Features of a batch of sentences, then a head; the parameters are drawn by torch's global generator.

    elmo: a mix of the biLM's layers per element of elmo_at, where they go: "input" (with the other features), "output"
    (with the BiLSTM's output).

    train: the sentences whose words get random embeddings, of a model to be trained; words: those that have them, of a
    model whose weights are to be loaded.

    Raises: ElmoFastError: files of vectors or of the biLM that cannot be used.
    """

    def __init__(
        self, config: TaskConfig, labels: int, train: Sequence[Example] = (), words: Sequence[str] = ()
    ) -> None:
        super().__init__()
        static = None
        if config.vectors is not None:
            static = StaticFeatures(load_vectors(config.vectors), trainable=config.train_vectors)
        elif config.word_dim and train:
            static = StaticFeatures.random(texts_of(train), config.word_dim)
        elif config.word_dim:
            empty = Vectors(list(words), np.zeros((len(words), config.word_dim), np.float32))
            static = StaticFeatures(empty, trainable=True)
        choices: dict[str, Any] = {"precision": config.precision, "backend": config.backend}
        # float16 has little room for gradients, which a GPU's kernels do not scale.
        precision = "float32" if config.precision == "float16" else trained_precision(config.precision)
        trained: dict[str, Any] = {"precision": precision, "backend": config.backend}
        characters = CharacterFeatures(**trained) if config.characters else None
        elmo_at, elmo = ELMO_AT[config.elmo], None
        if elmo_at:
            assert config.model is not None  # see validate
            bilm = load_bilm(config.model, config.prefix, fine_tune=config.fine_tune, **choices)
            mix: dict[str, Any] = {"layer": config.layer, "dropout": config.elmo_dropout, "l2": config.mix_l2}
            elmo = ElmoFeatures(bilm, len(elmo_at), backend=config.backend, **mix)
        width = sum(each.get_output_dim() for each in (static, characters) if each is not None)
        width += elmo.get_output_dim() if elmo is not None and "input" in elmo_at else 0
        settings: dict[str, Any] = {
            "hidden": config.hidden, "lstm_layers": config.lstm_layers, "dropout": config.dropout,
            "output_width": elmo.get_output_dim() if elmo is not None and "output" in elmo_at else 0, **trained,
        }  # fmt: skip
        if config.task == "tag":
            head: Tagger | Classifier = Tagger(width, labels, crf=config.crf, **settings)
        else:
            pairs = config.pair_column is not None
            head = Classifier(width, labels, pooling=config.pooling, pairs=pairs, **settings)
        self.static, self.characters, self.elmo, self.elmo_at, self.head = static, characters, elmo, elmo_at, head

    def forward(self, batch: TaskBatch) -> Tensor:
        """Return the scores of the labels, as the head's."""
        parts = [feature(batch.words) for feature in (self.static, self.characters) if feature is not None]
        mixes = {} if self.elmo is None else dict(zip(self.elmo_at, self.elmo(batch.words, batch.layers), strict=True))
        if "input" in mixes:
            parts.append(mixes["input"])
        return self.head(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1), batch.lengths, mixes.get("output"))

    def loss(self, scores: Tensor, batch: TaskBatch) -> Tensor:
        """Return the head's loss and the penalty of the mixes, []."""
        loss = self.head.loss(scores, batch.labels, batch.lengths)
        return loss if self.elmo is None else loss + self.elmo.penalty()


def input_digests(config: TaskConfig, model: TaskModel) -> dict[str, str]:
    """Return "model" and "vectors" -> a digest of what the features are computed from and the task does not save.

    With another biLM, or other vectors, under the same name the trained weights would mean nothing, and nothing else
    would tell.
    """
    digests = {}
    if model.elmo is not None and not model.elmo.fine_tuned:
        digests["model"] = model_digest(model.elmo.bilm)
    if config.vectors is not None:
        digests["vectors"] = sha256_of(config.vectors)
    return digests
