"""The layers of a frozen biLM for all words of a split: computed once, kept on disk, gathered into batches."""

import copy
import functools
import hashlib
import json
import math
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast._io.locks import file_lock
from elmo_fast._runtime.memory import size
from elmo_fast._runtime.progress import Progress
from elmo_fast.embed.sentence_vectors import write_vectors
from elmo_fast.embed.token_files import FORMAT, check_room, read_cache_folder, writing_cache_folder
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.bilm import BiLM, model_digest
from elmo_fast.modules.word_encoder import WordEncoder
from elmo_fast.tasks.formats import Example, text_rows, texts_of

MAX_TOKENS = 4096
Sentences = Sequence[Sequence[str]]
LayerArray = npt.NDArray[Any]
# The file of the layers of some sentences, which of them are wanted (None: all), and the shape of the layers.
_Plan = tuple[pathlib.Path, Sentences, Sequence[int] | None, tuple[int, int, int]]


class LayerCache:
    """The layers of the words of N sentences.

    layers: of all words end to end, [L+1, words, 2D] float32, usually a map of a file
    lengths: words of each sentence, [N]
    """

    def __init__(self, layers: LayerArray, lengths: npt.ArrayLike) -> None:
        self._layers, self._lengths = layers, np.asarray(lengths, np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def num_layers(self) -> int:
        """L+1."""
        return self._layers.shape[0]

    @property
    def width(self) -> int:
        """2D."""
        return self._layers.shape[2]

    def subset(self, indices: Sequence[int]) -> "LayerCache":
        """Return the layers of only these sentences, in this order; nothing is copied."""
        part, rows = copy.copy(self), np.asarray(indices, np.int64)
        part._lengths, part._starts = self._lengths[rows], self._starts[rows]
        return part

    def batch(self, indices: Sequence[int], layers: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """Return the layers of B sentences: ([L+1, B, T, 2D] float32 with 0 at padding, lengths [B] int64), on the CPU.

        Args:
            indices: of the sentences, [B].
            layers: numbers of those to read, the lowest being 0; None: all.
        """
        rows = np.asarray(indices, np.int64)
        lengths, starts = self._lengths[rows], self._starts[rows]
        chosen = range(self.num_layers) if layers is None else layers
        out = np.empty((len(chosen), len(rows), int(lengths.max(initial=0)), self.width), np.float32)
        for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            for index, layer in enumerate(chosen):
                out[index, number, :length] = self._layers[layer, start : start + length]
            out[:, number, length:] = 0
        return torch.from_numpy(out), torch.from_numpy(lengths)


def cached_layers(
    model: BiLM,
    examples: Sequence[Example],
    folder: str | os.PathLike[str],
    *,
    only: Sequence[int] | None = None,
    max_tokens: int = MAX_TOKENS,
    progress: Progress | None = None,
    report: Callable[[str], None] | None = None,
) -> LayerCache:
    """Return the layers of all words of `examples`, read from a file in `folder`, or computed and cached there.

    Every sentence starts from a zero state, whatever `model.stateful`. The file's name is a digest of the model's
    weights, its settings and the sentences. Its content's digest is checked before use: a damaged file is computed
    again, with a message. Only one of several processes computes a file; the others wait.

    Args:
        model: the biLM, on any device.
        examples: the sentences, or pairs, whose texts count as two; their labels do not matter.
        folder: created if missing.
        only: indices of the sentences wanted, in this order; None: all. Only these are computed, unless a file of all
            sentences exists.
        max_tokens: most words run at a time, padding counted; a longer sentence runs alone, in chunks of so many.
        progress: called with the words done and all words, while they are computed.
        report: takes sentences on the size of what is computed, and on waiting; None: a warning for the latter.

    Raises: ElmoFastError: no words, or no room on the disk; OSError: the folder cannot be written.
    """
    how: dict[str, Any] = {"max_tokens": max_tokens, "progress": progress, "report": report}
    return cached_splits(model, {"": (examples, only)}, folder, **how)[""]


def cached_splits(
    model: BiLM,
    splits: Mapping[str, tuple[Sequence[Example], Sequence[int] | None]],
    folder: str | os.PathLike[str],
    *,
    max_tokens: int = MAX_TOKENS,
    progress: Progress | None = None,
    report: Callable[[str], None] | None = None,
) -> dict[str, LayerCache]:
    """Return the layers of several splits, as cached_layers does, by name: name -> (examples, only)."""
    caches, say = dict[str, LayerCache](), report or (lambda sentence: warnings.warn(sentence, stacklevel=4))
    sizes: dict[str, Any] = {"batch_size": max_tokens, "max_tokens": max_tokens, "window": sys.maxsize}
    for name, (path, sentences, only, (depth, words, width)) in planned_caches(model, splits, folder, report).items():
        lengths, is_new, layers = [len(words) for words in sentences], not path.exists(), _stored(path)
        if layers is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            waits = f"{path}: waits for another process that computes it"
            with file_lock(path.with_suffix(".lock"), functools.partial(say, waits)):
                layers = _stored(path) if is_new else None
                if layers is None:
                    with writing_cache_folder(path, lengths, depth, width, path.name) as write:  # the longest first
                        write_vectors(model, sentences, write, total=words, progress=progress, **sizes)
                    layers = read_cache_folder(path).embeddings.swapaxes(0, 1)
        caches[name] = LayerCache(layers, lengths)
        if only is not None:
            caches[name] = caches[name].subset(only)
    return caches


def planned_caches(
    model: BiLM,
    splits: Mapping[str, tuple[Sequence[Example], Sequence[int] | None]],
    folder: str | os.PathLike[str],
    report: Callable[[str], None] | None,
) -> dict[str, _Plan]:
    """Report the size and the folder of all files that `cached_splits` would compute; return what it would do.

    A split's file is of its sentences that are wanted or, if it exists, of all.

    Raises: ElmoFastError if the disk has no room for all of them.
    """
    plans = dict[str, _Plan]()
    for name, (examples, only) in splits.items():
        sentences = texts_of(examples)
        if not any(sentences):
            raise ElmoFastError("examples must have at least one word; got none")
        path = pathlib.Path(folder) / _key(model, sentences)
        if only is not None:
            only = text_rows(only, len(sentences) // len(examples))
            if len(only) < len(sentences) and not path.exists():
                sentences, only = [sentences[index] for index in only], None
                path = path.with_name(_key(model, sentences))
        shape = model.num_layers, sum(map(len, sentences)), model.get_output_dim()
        plans[name] = path, sentences, only, shape
    missing = {path: shape for path, _, _, shape in plans.values() if not path.exists()}
    if needed := 4 * sum(map(math.prod, missing.values())):
        check_room(next(iter(missing)), needed, "; give another cache_dir or save_dir, or a smaller train_share")
        words = sum(shape[1] for shape in missing.values())
        if report is not None:
            report(f"cache  {size(needed)} in {folder}: the biLM's layers for {words:,} words, computed once")
    return plans


def _stored(path: pathlib.Path) -> LayerArray | None:
    """Return the layers of a complete file, whose bytes match their digest; None if there is none."""
    try:
        return read_cache_folder(path).embeddings.swapaxes(0, 1) if path.exists() else None
    except ElmoFastError as damage:
        warnings.warn(f"{damage}; it is computed again", stacklevel=5)
        return None


def _key(model: BiLM, sentences: Sentences) -> str:
    backend, device = model.lstm.backend, next(model.parameters()).device.type
    settings = [FORMAT, model_digest(model), model.arithmetic, backend, device, "float32"]
    if isinstance(model.encoder, WordEncoder):
        settings.append(model.encoder.known().digest)
    digest = hashlib.sha256(json.dumps(settings).encode())
    for words in sentences:
        digest.update(json.dumps(words).encode())
    return digest.hexdigest()[:40]
