"""The vectors of all tokens in one array, memory-mapped: the safetensors files of `embed`, and caches made of one."""

import contextlib
import math
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.embed.token_files.formats import FORMATS, FileLayout, Write
from elmo_fast.errors import CheckpointError, ElmoFastError, read_failures_named
from elmo_fast.manifest import MANIFEST, has_files, read_folder, write_folder

# Of a cache: the metadata "format" of its file, and the file.
FORMAT, VECTORS = "elmo_fast.token_vectors 5", "token_vectors.safetensors"


class FlatFile(NamedTuple):
    """A safetensors file of `embed`: offsets [N + 1] int64, and embeddings [tokens, L or 1, 2D], memory-mapped."""

    offsets: npt.NDArray[np.int64]
    embeddings: npt.NDArray[Any]
    metadata: dict[str, str]


def read_flat(path: pathlib.Path) -> FlatFile:
    """Open a safetensors file of `embed`. Raises CheckpointError for another file, or a damaged one."""
    from safetensors import SafetensorError, safe_open

    try:
        with read_failures_named(path), safe_open(path, framework="numpy") as file:
            if not {"offsets", "embeddings"} <= set(file.keys()):
                raise CheckpointError(f"{path}: no file of vectors that `elmo-fast embed --format safetensors` wrote")
            offsets, metadata, rows = file.get_tensor("offsets"), file.metadata() or {}, file.get_slice("embeddings")
            shape, dtype = tuple(rows.get_shape()), {"F32": "<f4", "F16": "<f2"}.get(rows.get_dtype())
    except SafetensorError as error:
        import h5py

        if h5py.is_hdf5(path):
            raise ElmoFastError(
                f"{path}: an HDF5 file, which h5py opens; ElmoVectors opens a folder of parts, or a file that "
                "`elmo-fast embed` or `merge` wrote with --format safetensors"
            ) from error
        raise CheckpointError(f"{path}: damaged, or no safetensors file: {error}") from error
    if dtype is None or len(shape) != 3 or offsets[-1:].tolist() != [shape[0]]:
        raise CheckpointError(f"{path}: damaged: its header is not what was written")
    if not (numbers := math.prod(shape)):
        return FlatFile(offsets, np.empty(shape, dtype), metadata)  # no memory to map
    start = os.path.getsize(path) - numbers * np.dtype(dtype).itemsize  # it is the last tensor
    return FlatFile(offsets, np.memmap(path, dtype, "r", start, shape), metadata)


@contextlib.contextmanager
def writing_cache_folder(
    path: str | os.PathLike[str], lengths: Sequence[int], layers: int, width: int, made_from: str
) -> Iterator[Write]:
    """Yield write(sentence, vectors [L, n, D]) of a new cache, which is at `path` once all sentences are written.

    They may come in any order. lengths: tokens of each sentence; made_from: what the vectors depend on, for the reader.
    Raises OSError: the disk is full, the folder cannot be written.
    """
    about = {"format": FORMAT, "made_from": made_from}
    layout = FileLayout(np.asarray(lengths, np.int64), layers, width, np.dtype(np.float32), about)
    with write_folder(path) as new, FORMATS["safetensors"](new / VECTORS, layout) as write:
        yield write


def read_cache_folder(path: str | os.PathLike[str]) -> FlatFile:
    """Open a cache that `writing_cache_folder` wrote, after comparing all of it with its digest.

    Raises CheckpointError if it is truncated, changed or of another version, ElmoFastError if it is something else.
    """
    if not has_files(path, VECTORS, MANIFEST):
        raise ElmoFastError(f"{path}: is no folder of token vectors; name another, or remove it")
    return read_folder(path, [VECTORS], _cache_in, advice="")


def _cache_in(folder: pathlib.Path) -> FlatFile:
    file = read_flat(folder / VECTORS)
    if file.metadata.get("format") != FORMAT:
        raise CheckpointError(f"{folder / VECTORS}: written by another version")
    return file
