"""A cache of the vectors of every token of some sentences, checked whenever it is opened.

safetensors: `vectors` [L, N, D] float32; the header says what they were made from, and the SHA-256 of that
and of the vectors.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo_fast.embed.token_files.formats import Write, mapped, safetensors_layout
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import replacing

Rows = npt.NDArray[Any]
FAMILY = "elmo_fast.token_vectors"
FORMAT = f"{FAMILY} 3"


class DamagedFile(ElmoFastError):
    """A cache that is not what was written, or that an older version wrote."""


class CacheFile:
    """An open cache: what it was made from, and its vectors [L, N, D], memory-mapped.

    path: what `writing_cache_file` wrote. Raises DamagedFile if it is truncated, changed or of an older version,
    ElmoFastError if it is another kind of file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = os.fspath(path)
        with open(path, "rb") as raw:
            if FAMILY.encode() not in raw.read(1 << 12):
                raise ElmoFastError(f"{path}: is no file of token vectors; name another, or remove it")
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise DamagedFile(f"{path}: written by an older version")
                vectors = mapped(path, file.get_slice("vectors"))
        except SafetensorError as error:
            raise DamagedFile(f"{path}: damaged: {error}") from error
        if vectors is None:
            raise DamagedFile(f"{path}: damaged: its header is not what was written")
        self.made_from = about.get("made_from", "")
        self.vectors: Rows = vectors
        if about.get("sha256") != _digest(self.path, os.path.getsize(path) - vectors.nbytes, self.made_from):
            raise DamagedFile(f"{path}: damaged: its vectors are not those that were written")


@contextlib.contextmanager
def writing_cache_file(
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
    about = {"format": FORMAT, "made_from": made_from, "sha256": "0" * 64}
    planned = safetensors_layout(tensors, about)
    start = planned.starts["vectors"]
    with replacing(path) as temporary, open(temporary, "r+b") as file:
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
        file.flush()
        about["sha256"] = _digest(temporary, start, made_from)
        file.seek(0)
        file.write(safetensors_layout(tensors, about).header)


def _digest(path: str | os.PathLike[str], start: int, made_from: str) -> str:
    """Return the SHA-256 of what the vectors were made from and of a file from `start` on."""
    with open(path, "rb") as file:
        file.seek(start)
        return hashlib.file_digest(file, lambda: hashlib.sha256(made_from.encode())).hexdigest()
