"""Reads and writes bilm-tf's (and AllenNLP's) HDF5 weights; every shape is checked against the options first."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._io.atomic_file import atomic_file, hdf5_written
from .._runtime.memory import bytes_of
from ..errors import CheckpointError, read_failures_named, refuse, write_failures_named
from .bilm_layout import bilm_shapes, check_storable, packed, root, unpacked, with_zero_row, without_zero_row
from .options import ElmoOptions
from .state import SOFTMAX_WEIGHT, WORD_EMBEDDING, State, bilm_part, check_shapes, check_state

PathLike = str | os.PathLike[str]
# Under these roots, a tensor that the options do not require means that the options belong to another file.
_ROOTS = ("CNN", "RNN_")
# The groups of a biLM's datasets, and their maximum depth (RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0).
_BILM = (*_ROOTS, "char_embed", "embedding", "softmax")
_DEEPEST = 5


def read_bilm_hdf5(weight_file: PathLike, options: ElmoOptions, *, softmax_file: PathLike | None = None) -> State:
    """Return the state in `weight_file`; `softmax/*` may also be in a separate file.

    Raises: CheckpointError naming the file and every wrong tensor, wanted and found; nothing is loaded partially.
    """
    arrays = _read(weight_file, options, lambda name: softmax_file is None or root(name) != "softmax")
    if softmax_file is not None:
        softmax = _read(softmax_file, options, lambda name: root(name) == "softmax")
        if not softmax:
            refuse(softmax_file, ["softmax: wanted in this file, found no such tensor"])
        arrays |= softmax
    return unpacked(arrays, options, weight_file)


def write_bilm_hdf5(
    weight_file: PathLike, state: Mapping[str, Tensor], options: ElmoOptions, *, softmax_file: PathLike | None = None
) -> None:
    """Write a state that bilm-tf and AllenNLP can read; the softmax goes to `softmax_file` if given.

    Raises: CheckpointError if the state does not match the options, or contains what the format cannot store.
    """
    check_storable(options, weight_file)
    check_state(state, options)
    if len(mixes := state.keys() - bilm_part(state).keys()):
        refuse(weight_file, [f"{sorted(mixes)[0]}: the format cannot store scalar mixes; write bilm_part(state)"])
    arrays = packed(state, options)
    if softmax_file is not None and SOFTMAX_WEIGHT in state:
        _write(softmax_file, {name: arrays.pop(name) for name in list(arrays) if root(name) == "softmax"})
    _write(weight_file, arrays)


def read_token_embeddings(embedding_file: PathLike) -> Tensor:
    """Return the dataset `embedding` [V, D] of a cached vocabulary, behind a row of zeros (padding).

    [V + 1, D] float32.
    """
    with _opened(embedding_file) as file:
        datasets = _datasets(file)
        check_shapes(embedding_file, {"embedding": (None, None)}, datasets)
        return with_zero_row(_tensor(embedding_file, "embedding", datasets["embedding"]))


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
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: not an HDF5 file of weights, or damaged ({reason})") from error


def _datasets(group: Any, above: str = "") -> dict[str, Any]:
    """Return the datasets by name, from the groups of a biLM; data in other files is refused."""
    import h5py

    datasets: dict[str, Any] = {}
    for name in group:  # h5py's own visitors end in a SystemError on some damaged files
        path = f"{above}{name}"
        if not path.startswith(_BILM):
            continue
        if group.get(name, getclass=True, getlink=True) is not h5py.HardLink:
            refuse(group.file.filename, [f"{path}: wanted numbers in this file, found a link; links are not followed"])
        item = group[name]
        if isinstance(item, h5py.Group) and path.count("/") < _DEEPEST:
            datasets |= _datasets(item, f"{path}/")
        elif isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                refuse(group.file.filename, [f"{path}: its numbers are in other files, which are not read"])
            datasets[path] = item
    return datasets


def _read(path: PathLike, options: ElmoOptions, belongs: Callable[[str], bool]) -> dict[str, Tensor]:
    """Return the tensors of one file whose name `belongs` there, checked by name and shape before any is read."""
    with _opened(path) as file:
        datasets = {name: data for name, data in _datasets(file).items() if belongs(name)}
        expected = {name: shape for name, shape in bilm_shapes(options, datasets, path).items() if belongs(name)}
        others = [name for name in datasets if name.startswith(_ROOTS) and name not in expected]
        check_shapes(path, expected, datasets, others)
        return {name: _tensor(path, name, datasets[name]) for name in expected}


def _tensor(path: PathLike, name: str, data: Any) -> Tensor:
    if data.dtype.kind != "f":
        refuse(path, [f"{name}: wanted floating-point numbers, found {data.dtype}"])
    return torch.from_numpy(data.astype(np.float32)[()])


def _write(path: PathLike, arrays: Mapping[str, Tensor]) -> None:
    with write_failures_named(path), atomic_file(path) as new, hdf5_written(new, path) as (file, written):
        for name, array in arrays.items():
            values = array.detach().cpu().contiguous()
            dtype = str(values.dtype).removeprefix("torch.")
            file.create_dataset(name, data=np.frombuffer(bytes_of(values), dtype).reshape(values.shape))
            written.check()
