"""Sentences to one vector per token or per sentence: each sentence by itself, by length, in bounded memory."""

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from elmo_fast.checkpoints import file_beside, model_files, pretrained_folder
from elmo_fast.devices import device_named
from elmo_fast.errors import ElmoFastError, not_a_string
from elmo_fast.modules.bilm import BiLM
from elmo_fast.modules.layers import Layers, combined_width
from elmo_fast.modules.sentence_vectors import Array, embed_batches
from elmo_fast.text import in_order

POOLINGS = ("mean", "max")


def shared_bilm(model: str | os.PathLike[str], *, device: Any = "cpu", **settings: Any) -> BiLM:
    """The stateless biLM of a folder or of a name of the hub; the last one read is kept for who asks for it again.

    settings: precision, backend, as BiLM's. Raises: ElmoFastError, CheckpointError.
    """
    if not isinstance(model, str | os.PathLike) or not os.fspath(model):
        raise ElmoFastError(f"model must be a folder that holds a model, or a name of the hub; got {model!r}")
    place = device_named(device)
    folder = pretrained_folder(model)
    words = file_beside(folder)
    files = [*model_files(folder), *([] if words is None else [words])]
    marks = tuple((str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return _read(folder, marks, place, **settings)


@functools.lru_cache(maxsize=1)
def _read(folder: Any, marks: Any, device: torch.device, **settings: Any) -> BiLM:
    """marks: path, time and size of the files, so that a model written anew is read anew."""
    return BiLM(folder, stateful=False, **settings).to(device)


class TokenVectors:
    """A biLM as a function of sentences: [T, W] float32 for each, whatever else is in its batch or came before.

    Args:
        model: a folder that holds a model, a name of the hub, or a BiLM (run as it is but for its carried state, which
            is neither used nor changed).
        layers: "average" of all, the "top", "all" side by side, a number from 0 (the words by themselves), or several.
        batch_size: most sentences run at a time.
        max_tokens: most tokens run at a time, padding counted; a longer sentence is run by itself in stretches of so
            many tokens, with the same vectors.
        settings: of a model that is read here: device, precision, backend, as shared_bilm's.

    Raises: ElmoFastError, CheckpointError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | BiLM,
        layers: Layers = "average",
        *,
        batch_size: int = 64,
        max_tokens: int = 4096,
        **settings: Any,
    ) -> None:
        _check_count("batch_size", batch_size)
        _check_count("max_tokens", max_tokens)
        self.bilm = model if isinstance(model, BiLM) else shared_bilm(model, **settings)
        self.layers, self.batch_size, self.max_tokens = layers, batch_size, max_tokens
        self.width = combined_width(layers, self.bilm.num_layers, self.bilm.get_output_dim())

    def __call__(self, sentences: Iterable[Sequence[str]]) -> Iterator[Array]:
        """The vectors [T, W] of each tokenised sentence, in order; [0, W] for an empty one. Raises: ElmoFastError."""
        not_a_string(sentences, "sentences", "a list of sentences, each a list of words")
        checked = (_checked(i, words) for i, words in enumerate(sentences))
        runs = embed_batches(
            self.bilm, checked, self.layers, side_by_side=True, batch_size=self.batch_size, max_tokens=self.max_tokens
        )
        return in_order(pair for batch in runs for pair in zip(batch.indices, batch.vectors, strict=True))

    def pooled(self, sentences: Iterable[Sequence[str]], pooling: str = "mean") -> Array:
        """One vector per sentence, [N, W]: the "mean" or the "max" of its tokens'; zeros for an empty one.

        Raises: ElmoFastError.
        """
        if pooling not in POOLINGS:
            raise ElmoFastError(f"pooling must be one of {', '.join(POOLINGS)}; got {pooling!r}")
        pool, empty = (np.mean if pooling == "mean" else np.max), np.zeros(self.width, np.float32)
        rows = [pool(vectors, axis=0) if len(vectors) else empty for vectors in self(sentences)]
        return np.stack(rows) if rows else np.zeros((0, self.width), np.float32)


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ElmoFastError(f"{name} must be a whole number of 1 or more; got {value!r}")


def _checked(index: int, words: Any) -> Sequence[str]:
    if isinstance(words, str | bytes) or not isinstance(words, Sequence):
        raise ElmoFastError(f"sentence {index} must be a list of words; got {words!r:.60}")
    for word in words:
        if not isinstance(word, str):
            raise ElmoFastError(f"sentence {index} must be a list of strings; it holds {word!r:.60}")
    return words
