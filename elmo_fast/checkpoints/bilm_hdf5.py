"""Reads and writes bilm-tf's (and AllenNLP's) HDF5 weights; every shape is checked against the options first."""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import CheckpointError, read_failures_named, refuse, write_failures_named
from ..files import hdf5_replacing
from ..memory import bytes_of, reader
from .bilm_layout import bilm_shapes, packed, root, sizes_differ, unpacked, with_zero_row, without_zero_row
from .options import ElmoOptions
from .state import (
    SOFTMAX_WEIGHT,
    WORD_EMBEDDING,
    Shape,
    State,
    bilm_part,
    check_state,
    read_tensors,
)

PathLike = str | os.PathLike[str]
# Under these roots, a tensor that the options do not require means that the options belong to another file.
_ROOTS = ("CNN", "RNN_")
# The groups of a biLM's datasets, and their maximum depth (RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0).
_BILM = (*_ROOTS, "char_embed", "embedding", "softmax")
_GROUPS = ("RNN_0", "RNN_1", "CNN")
_DEEPEST = 5
_MOST_ENTRIES = 20_000
# deflate compresses at most 1032 times; a dataset with a larger ratio was never written.
_SMALL, _PACKED = 1 << 20, 1040
# First bytes of files that are given as weights by mistake: what they are, and what to do.
_INSTEAD = {
    b"<": "it is a page of HTML or XML, such as a server's error; download the weights again",
    b"{": "it is JSON; did you swap options_file and weight_file?",
    b"version https://git-lfs": "it is a pointer of Git LFS; fetch the weights with `git lfs pull`",
}
# The attribute of a softmax's own file: the digest of the weights that it was written with.
_DIGEST = "weights_sha256"


def read_bilm_hdf5(
    weight_file: PathLike,
    options: ElmoOptions,
    *,
    embedding_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
) -> State:
    """Return the state in `weight_file`; `embedding` and `softmax/*` may also be in separate files.

    Raises: CheckpointError naming the file and every wrong tensor, wanted and found; nothing is loaded partially.
    """
    _refuse_peculiar(weight_file, options)
    apart = {"embedding": embedding_file, "softmax": softmax_file}
    files = {part: path for part, path in apart.items() if path is not None}
    arrays = _read(weight_file, options, lambda name: root(name) not in files)
    if softmax_file is not None:
        _check_belongs(softmax_file, weight_file, arrays)
    for part, path in files.items():
        tensors = _read(path, options, lambda name, part=part: root(name) == part)  # type: ignore[misc]
        if not tensors:
            refuse(path, [f"{part}: wanted in this file, found no such tensor"])
        arrays |= tensors
    return unpacked(arrays, options, weight_file)


def write_bilm_hdf5(
    weight_file: PathLike, state: Mapping[str, Tensor], options: ElmoOptions, *, softmax_file: PathLike | None = None
) -> None:
    """Write a state that bilm-tf and AllenNLP can read; the softmax goes to `softmax_file` if given.

    Raises: CheckpointError if the state does not match the options, or contains what the format cannot store.
    """
    _refuse_peculiar(weight_file, options)
    check_state(state, options)
    if len(mixes := state.keys() - bilm_part(state).keys()):
        refuse(weight_file, [f"{sorted(mixes)[0]}: the format cannot store scalar mixes; write bilm_part(state)"])
    arrays = packed(state, options)
    if softmax_file is not None and SOFTMAX_WEIGHT in state:
        softmax = {name: arrays.pop(name) for name in list(arrays) if root(name) == "softmax"}
        _write(softmax_file, softmax, {_DIGEST: _digest(arrays)})
    _write(weight_file, arrays)


def _digest(arrays: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the tensors of characters and LSTM, which are always in the file of the weights."""
    digest = hashlib.sha256()
    for name in sorted(name for name in arrays if name.startswith(_ROOTS)):
        digest.update(name.encode())
        digest.update(bytes_of(arrays[name].detach().cpu().contiguous()))
    return digest.hexdigest()


def _check_belongs(softmax_file: PathLike, weight_file: PathLike, arrays: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError if the softmax was written with other weights; files of bilm-tf do not say."""
    with _opened(softmax_file) as file:
        expected = file.attrs.get(_DIGEST)
    if expected is not None and str(expected) != _digest(arrays):
        raise CheckpointError(
            f"{softmax_file}: wanted the softmax of {weight_file}, found one that was written with other weights; give "
            "both files of one conversion"
        )


def _refuse_peculiar(path: PathLike, options: ElmoOptions) -> None:
    if options.peculiar is not None:
        refuse(path, [f"bilm-tf's format cannot store this model: {options.peculiar}"])


def holds_weights(path: PathLike) -> bool:
    """Return whether an HDF5 file can be a biLM's weights: it has a group of them, or cannot be read (damage is named).

    Vectors that `embed` or `cache-vocab` wrote have none.
    """
    try:
        with _opened(path) as file:
            return any(group in file for group in _GROUPS)
    except CheckpointError:
        return True


@reader
def read_token_embeddings(embedding_file: PathLike) -> Tensor:
    """Return the dataset `embedding` [V, D] of a cached vocabulary, behind a row of zeros (padding).

    [V + 1, D] float32.
    """
    with _opened(embedding_file) as file:
        table = _tensors(embedding_file, {"embedding": (None, None)}, _datasets(file))
    return with_zero_row(table["embedding"])


def write_token_embeddings(embedding_file: PathLike, table: Tensor) -> None:
    """Write the dataset `embedding` of a cached vocabulary from a table [V + 1, D] whose row 0 is zero."""
    _write(embedding_file, {"embedding": without_zero_row(WORD_EMBEDDING, table)})


@contextlib.contextmanager
def _opened(path: PathLike) -> Iterator[Any]:
    """Yield an open HDF5 file; any exception on a damaged file becomes a CheckpointError that names the file."""
    import h5py

    with read_failures_named(path), open(path, "rb"):
        pass
    try:
        with h5py.File(path, "r") as file:
            yield file
    except CheckpointError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, UnicodeError, MemoryError) as error:
        raise CheckpointError(f"{path}: not an HDF5 file of weights, or damaged ({_reason(path, error)})") from error


def _reason(path: PathLike, error: Exception) -> str:
    """Return why a file is not an open HDF5 file: what it is instead, how much is missing, or the library's words."""
    with open(path, "rb") as file:
        head = file.read(64).lstrip()
    for begin, what in _INSTEAD.items():
        if head.startswith(begin):
            return what
    text = " ".join(str(error).split())
    if (sizes := re.search(r"truncated file: eof = (\d+),.* stored_eof = (\d+)", text)) is not None:
        actual, expected = map(int, sizes.groups())
        return f"it is cut off: {actual:,} of {expected:,} bytes; download or copy it again"
    return text


def _datasets(file: Any) -> dict[str, Any]:
    """Return the datasets by name, from the groups of a biLM; data in other files is refused.

    It visits at most _MOST_ENTRIES entries, none deeper than a biLM's: a file may contain millions.
    """
    import h5py

    datasets: dict[str, Any] = {}
    waiting, entries = [("", file)], 0
    while waiting:
        above, group = waiting.pop()
        for name in group:
            path, entries = f"{above}{name}", entries + 1
            if entries > _MOST_ENTRIES:
                refuse(file.filename, [f"wanted the weights of a biLM, found more than {_MOST_ENTRIES:,} entries"])
            if not path.startswith(_BILM):
                continue
            kind = group.get(name, getclass=True, getlink=True)
            if kind is not h5py.HardLink:
                refuse(file.filename, [f"{path}: wanted numbers in this file, found a link; links are not followed"])
            item = group[name]
            if isinstance(item, h5py.Group) and path.count("/") < _DEEPEST:
                waiting.append((f"{path}/", item))
            elif isinstance(item, h5py.Dataset):
                if item.external or item.is_virtual:
                    refuse(file.filename, [f"{path}: its numbers are in other files, which are not read"])
                datasets[path] = item
    return datasets


@reader
def _read(path: PathLike, options: ElmoOptions, belongs: Callable[[str], bool]) -> dict[str, Tensor]:
    """Return the tensors of one file whose name `belongs` there, checked by name and shape before any is read."""
    with _opened(path) as file:
        datasets = {name: data for name, data in _datasets(file).items() if belongs(name)}
        shapes = {name: shape for name, shape in bilm_shapes(options, datasets).items() if belongs(name)}
        others = [name for name in datasets if name.startswith(_ROOTS) and name not in shapes]
        return _tensors(path, shapes, datasets, others)


def _tensors(
    path: PathLike, shapes: Mapping[str, Shape], datasets: Mapping[str, Any], others: Sequence[str] = ()
) -> dict[str, Tensor]:
    def unfit(name: str) -> str:
        data, stored = datasets[name], datasets[name].id.get_storage_size()
        if data.dtype.kind != "f":
            return f"wanted floating-point numbers, found {data.dtype}"
        if data.nbytes > _SMALL + _PACKED * stored:
            return f"wanted {data.nbytes:,} bytes of numbers, found {stored:,} in the file"
        return ""

    return read_tensors(
        path, shapes, datasets, lambda name: datasets[name][()], unfit, others, sizes_differ(shapes, datasets)
    )


def _write(path: PathLike, arrays: Mapping[str, Tensor], attributes: Mapping[str, str] | None = None) -> None:
    with write_failures_named(path), hdf5_replacing(path) as (file, written):
        file.attrs.update(attributes or {})
        for name, array in arrays.items():
            values = array.detach().cpu().contiguous()
            dtype = str(values.dtype).removeprefix("torch.")
            file.create_dataset(name, data=np.frombuffer(bytes_of(values), dtype).reshape(values.shape))
            written.check()
