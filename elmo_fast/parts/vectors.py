"""The vectors that `embed` wrote, read one sentence at a time."""

import bisect
import functools
import json
import math
import operator
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo_fast.errors import CheckpointError, ElmoFastError, read_failures_named
from elmo_fast.parts.folder import NAMES, VECTORS, check_complete, check_part
from elmo_fast.parts.plan import PLAN, name_of, read_plan

Rows = npt.NDArray[Any]
OPEN_PARTS = 256  # that stay mapped


class FlatFile(NamedTuple):
    """A safetensors file of `embed`: offsets [N + 1] int64, and embeddings [tokens, L or 1, 2D], memory-mapped."""

    offsets: npt.NDArray[np.int64]
    embeddings: Rows
    metadata: dict[str, str]


class ElmoVectors(Sequence[Rows]):
    """The vectors of a text's sentences, by their number from 0: [L, T, 2D] float32 or float16 of all layers, else
    [T, 2D].

    The files are memory-mapped: opening reads no vectors, and a sentence reads its own.

    Args:
        path: a folder of parts, or a file of the format safetensors, that `elmo-fast embed` wrote.

    Raises: ElmoFastError: parts are missing, the file is another one; CheckpointError: a file is damaged or truncated.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self._digests = {}
        if self.path.is_dir():
            plan = read_plan(self.path)
            self._digests = check_complete(self.path, len(plan.parts))
            self._firsts, self._count = [part.first for part in plan.parts], plan.sentences
            self._lengths = [part.sentences for part in plan.parts]
        else:
            self._firsts, self._count = [0], len(read_flat(self.path).offsets) - 1
            self._lengths = [self._count]
        self._part = functools.lru_cache(OPEN_PARTS)(self._opened)
        self.metadata = self._part(0).metadata

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process the files are mapped again."""
        return type(self), (self.path,)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """The vectors of a sentence; of a slice a list of them. Views of the file, which cannot be written."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._count))]
        number = operator.index(index)
        if not -self._count <= number < self._count:
            raise IndexError(f"sentence {number}: there are {self._count}")
        number %= self._count
        part = bisect.bisect_right(self._firsts, number) - 1
        file, row = self._part(part), number - self._firsts[part]
        rows = file.embeddings[file.offsets[row] : file.offsets[row + 1]]
        return rows.swapaxes(0, 1) if self.metadata.get("layers") == "all" else rows[:, 0]

    def lengths(self) -> npt.NDArray[np.int64]:
        """The tokens of each sentence, [N] int64."""
        return np.concatenate([np.diff(self._part(number).offsets) for number in range(len(self._firsts))])

    def names(self) -> list[str] | None:
        """The sentences, or their keys; None if they were left out (--forget_sentences)."""
        parts = [self._names_of(number) for number in range(len(self._firsts))]
        return None if None in parts else [name for part in parts for name in part or ()]

    def verify(self, part: int | None = None) -> None:
        """Compares the files of a part, or of all, with the digests of when they were written. Raises CheckpointError.

        A single file has none.
        """
        for number in range(len(self._firsts)) if part is None else [part]:
            if self._digests:
                check_part(self.path, self._digests, number)

    def _opened(self, number: int) -> FlatFile:
        path = self.path / name_of(number) / VECTORS if self.path.is_dir() else self.path
        found = read_flat(path)
        wanted, count = self._lengths[number], len(found.offsets) - 1
        if count != wanted:
            raise CheckpointError(f"{path}: damaged: wanted {wanted} sentences, as in {PLAN}, found {count}")
        return found

    def _names_of(self, number: int) -> list[str] | None:
        if not self._digests:
            return _names_in(self.path)
        path = self.path / name_of(number) / NAMES
        if f"{name_of(number)}/{NAMES}" not in self._digests:
            return None
        with read_failures_named(path):
            names: list[str] = json.loads(path.read_bytes())
        return names


def read_flat(path: pathlib.Path) -> FlatFile:
    """Opens a safetensors file of `embed`. Raises ElmoFastError for another file, CheckpointError for a damaged one."""
    from safetensors import SafetensorError, safe_open

    try:
        with read_failures_named(path), safe_open(path, framework="numpy") as file:
            if not {"offsets", "embeddings"} <= set(file.keys()):
                raise ElmoFastError(f"{path}: no file of vectors that `elmo-fast embed --format safetensors` wrote")
            offsets, metadata = file.get_tensor("offsets"), file.metadata() or {}
            vectors = file.get_slice("embeddings")
            shape, dtype = tuple(vectors.get_shape()), {"F32": "<f4", "F16": "<f2"}.get(vectors.get_dtype())
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
    # The vectors are the last tensor of the file.
    start = path.stat().st_size - math.prod(shape) * np.dtype(dtype).itemsize
    rows = np.memmap(path, dtype, "r", start, shape) if shape[0] else np.empty(shape, dtype)  # nothing but blank lines
    return FlatFile(offsets, rows, metadata)


def _names_in(path: pathlib.Path) -> list[str] | None:
    """The names of the sentences of a safetensors file, if it stores them."""
    from safetensors import safe_open

    with read_failures_named(path), safe_open(path, framework="numpy") as file:
        return json.loads(file.get_tensor("names").tobytes()) if "names" in set(file.keys()) else None
