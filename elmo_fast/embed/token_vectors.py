"""One vector per token or per sentence: no carried state, sorted by length, in bounded memory."""

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from elmo_fast._runtime.devices import check_int8_device, device_named
from elmo_fast.checkpoints import file_beside, model_files, pretrained_folder
from elmo_fast.embed.layers import Layers, combined_width
from elmo_fast.embed.layers import pool as pooled
from elmo_fast.embed.sentence_vectors import Array, run_batches
from elmo_fast.embed.token_files import in_order
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.bilm import BiLM
from elmo_fast.op_choices import Pool
from elmo_fast.text import checked_sentences


def shared_bilm(model: str | os.PathLike[str], *, device: Any = "cpu", **settings: Any) -> BiLM:
    """Return the stateless biLM of a folder, an archive or a name on the hub; the last one is cached.

    settings: precision, backend, prefix, as in BiLM. Raises: ElmoFastError, CheckpointError.
    """
    if not isinstance(model, str | os.PathLike) or not os.fspath(model):
        raise ElmoFastError(f"model must be the folder or archive of a model, or a name on the hub; got {model!r}")
    place = device_named(device)
    check_int8_device(settings.get("precision", "float32"), place, settings.get("backend", "auto"))
    folder = pretrained_folder(model)
    words = file_beside(folder)
    files = [*model_files(folder), *([] if words is None else [words])]
    marks = tuple((str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return _read(folder, marks, place, **settings)


@functools.lru_cache(maxsize=1)
def _read(folder: Any, marks: Any, device: torch.device, **settings: Any) -> BiLM:
    """Load a model once for all that name it; `marks`, path, time and size of its files, tell when it changed."""
    with torch.device("cpu"):
        model = BiLM(folder, stateful=False, **settings)
    return model.to(device)


class TokenVectors:
    """A biLM as a function of sentences: [T, W] float32 for each, independent of all other sentences.

    Args:
        model: a model's folder or archive, a name on the hub, or a BiLM, whose carried state stays as it is.
        layers: "average" of all, the "top", "all" side by side, a number from 0 (the word encoder), or several.
        batch_size: maximum number of sentences in a batch; None: as in ElmoEmbedder.embed_file.
        max_tokens: maximum number of tokens in a batch, including padding; a longer sentence runs alone in chunks,
            with the same vectors.
        settings: for a model that is read here: device, precision, backend, prefix, as in shared_bilm.

    Raises: ElmoFastError, CheckpointError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | BiLM,
        layers: Layers = "average",
        *,
        batch_size: int | None = None,
        max_tokens: int = 4096,
        **settings: Any,
    ) -> None:
        self.bilm = model if isinstance(model, BiLM) else shared_bilm(model, **settings)
        self.layers, self.batch_size, self.max_tokens = layers, batch_size, max_tokens
        self.width = combined_width(layers, self.bilm.num_layers, self.bilm.get_output_dim())

    def __call__(self, sentences: Iterable[Sequence[str]]) -> Iterator[Array]:
        """Yield the vectors [T, W] of each tokenized sentence, in order; [0, W] for an empty one.

        The weights must not change before the last one: words' vectors are cached meanwhile. Raises: ElmoFastError.
        """
        return self._run(checked_sentences(sentences), side_by_side=True)

    def _run(self, sentences: Iterable[Sequence[str]], side_by_side: bool) -> Iterator[Array]:
        ready: list[Array] = []
        put = in_order(ready.append)
        sizes: dict[str, Any] = {"batch_size": self.batch_size, "max_tokens": self.max_tokens}
        for run in run_batches(self.bilm, sentences, self.layers, **sizes):
            for index, vectors in zip(run.indices, run.vectors(side_by_side), strict=True):
                put(index, vectors)
            yield from ready
            ready.clear()

    def pooled(
        self,
        sentences: Iterable[Sequence[str]],
        pool: Pool = "mean",
        *,
        total: int | None = None,
        show_progress_bar: bool = False,
    ) -> Array:
        """Return one vector per sentence, [N, W]: its tokens pooled by `embed.layers.pool`; zeros for an empty one.

        show_progress_bar: on the standard error; total: number of sentences that it is to reach, None if unknown.
        Raises: ElmoFastError.
        """
        runs = self._run(checked_sentences(sentences), side_by_side=False)
        with tqdm(runs, total=total, unit=" sentences", disable=not show_progress_bar) as bar:
            rows = [pooled(vectors, pool).reshape(self.width) for vectors in bar]
        return np.stack(rows) if rows else np.zeros((0, self.width), np.float32)
