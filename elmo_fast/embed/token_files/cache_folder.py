"""A cache of the vectors of every token of some sentences: a folder that is checked whenever it is opened.

Its file is safetensors: `vectors` [L, N, D] float32; the header says what they were made from.
"""

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.embed.token_files.formats import Write, mapped, safetensors_layout
from elmo_fast.errors import CheckpointError, ElmoFastError
from elmo_fast.manifest import MANIFEST, has_files, read_folder, write_folder

Rows = npt.NDArray[Any]
FORMAT = "elmo_fast.token_vectors 4"
VECTORS = "token_vectors.safetensors"


class CacheFolder:
    """An open cache: what it was made from, and its vectors [L, N, D], memory-mapped.

    path: the folder that `writing_cache_folder` wrote. Raises CheckpointError if it is truncated or changed,
    ElmoFastError if it is something else, FileNotFoundError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        if not has_files(path, VECTORS, MANIFEST):
            raise ElmoFastError(f"{path}: is no folder of token vectors; name another, or remove it")
        self.vectors: Rows
        self.made_from, self.vectors = read_folder(path, [VECTORS], _opened, advice="")


def _opened(folder: pathlib.Path) -> tuple[str, Rows]:
    from safetensors import SafetensorError, safe_open

    path = folder / VECTORS
    try:
        with safe_open(path, framework="numpy") as file:
            about, vectors = file.metadata() or {}, mapped(path, file.get_slice("vectors"))
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged: {error}") from error
    if vectors is None or about.get("format") != FORMAT:
        raise CheckpointError(f"{path}: written by another version")
    return about.get("made_from", ""), vectors


@contextlib.contextmanager
def writing_cache_folder(
    path: str | os.PathLike[str], lengths: Sequence[int], layers: int, width: int, made_from: str
) -> Iterator[Write]:
    """Yield write(sentence, vectors [L, n, D]) of a new cache, which is at `path` once all sentences are written.

    They may come in any order. The disk space is reserved first.

    lengths: tokens of each sentence; made_from: what the vectors depend on, for the reader. Raises OSError: the disk is
    full, the folder cannot be written.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])
    tokens = int(offsets[-1])
    tensors = {"vectors": (np.float32, (layers, tokens, width))}
    planned = safetensors_layout(tensors, {"format": FORMAT, "made_from": made_from})
    start = planned.starts["vectors"]
    with write_folder(path) as new, open(new / VECTORS, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, planned.end)
        file.write(planned.header)

        def write(sentence: int, vectors: Rows) -> None:
            begin, end = int(offsets[sentence]), int(offsets[sentence + 1])
            if vectors.shape != (expected := (layers, end - begin, width)):
                raise ValueError(f"vectors of sentence {sentence} must have shape {expected}; got {vectors.shape}")
            for layer, rows in enumerate(np.ascontiguousarray(vectors, np.float32)):
                file.seek(start + 4 * width * (layer * tokens + begin))
                file.write(rows.data)

        yield write
