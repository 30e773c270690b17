"""The splits of a task's data: sentences, their labels as numbers, and the batches of them that a model takes."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.progress import Progress
from elmo_fast.tasks.cache import LayerCache, cached_layers
from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.data import TaskData
from elmo_fast.tasks.features import ElmoFeatures
from elmo_fast.tasks.formats import Example
from elmo_fast.tasks.labels import UNSEEN, Labels


class TaskBatch(NamedTuple):
    """Sentences that are run together.

    words: B sentences; lengths: [B] int64; labels: [B, T] of a tagger, UNSEEN past each length, or [B] of a classifier,
    int64; layers: the frozen biLM's that are used, [L+1, B, T, 2D], or None.
    """

    words: list[list[str]]
    lengths: Tensor
    labels: Tensor
    layers: Tensor | None


class Split:
    """Sentences with labels, and what is kept of the frozen biLM for them.

    Args:
        examples: the sentences, each of one word or more.
        labels: those of training; None where only predictions are wanted.
        per_word: whether each word has a label, else each sentence.
        cache: a LayerCache of these sentences, or None.
        layers: numbers of the layers that are wanted of it; None: all.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        labels: Labels | None,
        *,
        per_word: bool,
        cache: LayerCache | None = None,
        layers: Sequence[int] | None = None,
    ) -> None:
        self.examples, self.per_word, self.cache, self._chosen = list(examples), per_word, cache, layers
        self.lengths = [len(example.words) for example in self.examples]
        self.words = sum(self.lengths)
        self._ids = [labels.ids(example.labels) if labels else [] for example in self.examples]

    def batch(self, indices: Sequence[int], device: torch.device | str = "cpu") -> TaskBatch:
        """The sentences of these indices, [B], as a batch on a device."""
        lengths = torch.tensor([self.lengths[index] for index in indices])
        layers = None if self.cache is None else self.cache.batch(indices, self._chosen)[0].to(device)
        words = [self.examples[index].words for index in indices]
        return TaskBatch(words, lengths.to(device), self._labels(indices, int(lengths.max())).to(device), layers)

    def _labels(self, indices: Sequence[int], time: int) -> Tensor:
        if not self.per_word:
            return torch.tensor([(self._ids[index] or [UNSEEN])[0] for index in indices])
        rows = [self._ids[index] for index in indices]
        return torch.tensor([row + [UNSEEN] * (time - len(row)) for row in rows])

    @property
    def gold(self) -> list[list[str]]:
        """The true labels of each sentence."""
        return [example.labels for example in self.examples]


def training_splits(
    config: TaskConfig,
    data: TaskData,
    elmo: ElmoFeatures | None,
    report: Callable[[str], None],
    progress: Progress | None = None,
) -> dict[str, Split]:
    """The splits "train" (the share that is used), "dev" and, where there is one, "test".

    elmo: those of the model, or None; where its biLM is frozen, the biLM's layers are computed once and kept on disk.

    The layers of all of train_path are kept, whatever train_share: runs of other shares find them.
    """
    per_word, splits = config.task == "tag", dict[str, Split]()
    folder = pathlib.Path(config.cache_dir or pathlib.Path(config.save_dir) / "cache")
    for name, examples in data.files.items():
        cache, chosen = None, None
        if elmo is not None and not elmo.fine_tuned:
            cache = cached_layers(elmo.bilm, examples, folder, report=report, progress=progress)
            chosen = elmo.layers
        if name == "train":
            examples, cache = data.train, cache and cache.subset(data.kept)
        splits[name] = Split(examples, data.labels, per_word=per_word, cache=cache, layers=chosen)
    return splits


def digest_of(*splits: Split) -> str:
    """A digest of sentences and labels, to tell whether a run goes on with the data that it began with."""
    found = hashlib.sha256()
    for split in splits:
        found.update(json.dumps(split.examples).encode())
    return found.hexdigest()
