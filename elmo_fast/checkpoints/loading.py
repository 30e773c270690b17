"""Reads a model of any format: a folder, an archive, or a pair of files."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from ..errors import CheckpointError
from .allennlp_archive import read_task_model, task_weights
from .allennlp_state import read_allennlp_state
from .archives import archives_named
from .bilm_checkpoint import read_bilm_checkpoint
from .bilm_hdf5 import read_bilm_hdf5
from .manylangs import TOKEN_EMBEDDER, read_manylangs
from .options import CONFIG, ElmoOptions, read_options
from .resolve import SOFTMAX, PathLike, is_model, model_files, opened
from .safetensors_folder import load_folder
from .state import State
from .tensor_bundle import INDEX

OWN, MANYLANGS = "elmo_fast: config.json, model.safetensors", "ELMoForManyLangs"
TASK, STATE = "AllenNLP: a model of a task", "AllenNLP: a state dictionary"
CHECKPOINT, HDF5 = "bilm-tf: a checkpoint of TensorFlow", "bilm-tf, AllenNLP: options.json, HDF5 weights"
_FOLDERS: dict[str, Callable[[Path], tuple[State, ElmoOptions]]] = {OWN: load_folder, MANYLANGS: read_manylangs}
_TORCH_SUFFIXES = (".th", ".pt", ".pth", ".bin")


def load_checkpoint(
    model: PathLike | None = None,
    options_file: PathLike | None = None,
    weight_file: PathLike | None = None,
    softmax_file: PathLike | None = None,
    *,
    prefix: str | None = None,
) -> tuple[State, ElmoOptions]:
    """The state and the options of a model, from a folder, an archive or a pair of files.

    model: a folder or an archive that `model_files` accepts; its softmax.hdf5, if present, contains the softmax.
    options_file, weight_file: bilm-tf's options.json, and HDF5 weights, the .index of bilm-tf's checkpoint, an AllenNLP
    .th/.pt state dictionary, or the archive of an AllenNLP model that lacks its options.
    softmax_file: with the pair: HDF5 with softmax/W and softmax/b, if the weights lack them.
    prefix: where the names of the biLM begin in an AllenNLP model that contains several; only such models have one.
    Raises: CheckpointError naming the file and what is wrong with it.
    """
    pair = {"options_file": options_file, "weight_file": weight_file, "softmax_file": softmax_file}
    for name, path in {"model": model, **pair}.items():
        _refuse_address(name, path)
    if model is not None:
        if any(path is not None for path in pair.values()):
            raise CheckpointError("give either model, or options_file and weight_file; got both")
        with archives_named():
            return _from_files(prefix, *model_files(model))
    if options_file is None or weight_file is None:
        raise CheckpointError(f"give model, or options_file and weight_file; got {options_file=!s}, {weight_file=!s}")
    with archives_named():
        return _from_pair(prefix, options_file, weight_file, softmax_file)


@archives_named()
def format_of(path: PathLike) -> str:
    """The name of a model's format. path: its folder or archive, or the weights of a pair. Raises: CheckpointError."""
    if not is_model(path):
        return _format(path)
    first, weights = model_files(path)[:2]
    return _format(weights, first)


def _format(weights: PathLike, first: Path | None = None) -> str:
    """first: of the files of a folder; None: `weights` is one of a pair."""
    if first is not None and Path(weights).name == CONFIG:
        return TASK
    if first is not None and first.name in (CONFIG, TOKEN_EMBEDDER):
        return OWN if first.name == CONFIG else MANYLANGS
    if is_model(weights) and task_weights(opened(weights)) is not None:
        return TASK
    suffix = Path(weights).suffix
    return CHECKPOINT if suffix == INDEX else STATE if suffix.lower() in _TORCH_SUFFIXES else HDF5


def _from_files(prefix: str | None, first: Path, weights: Path, *others: Path) -> tuple[State, ElmoOptions]:
    kind = _format(weights, first)
    if kind == TASK:
        return read_task_model(first, prefix=prefix)
    if kind in _FOLDERS:
        _refuse_prefix(prefix, first.parent)
        return _FOLDERS[kind](first.parent)
    return _from_pair(prefix, first, weights, next((file for file in others if file.name == SOFTMAX), None))


def _from_pair(
    prefix: str | None, options_file: PathLike, weights: PathLike, softmax: PathLike | None
) -> tuple[State, ElmoOptions]:
    kind = _format(weights)
    if softmax is not None and kind != HDF5:
        raise CheckpointError(f"softmax_file needs HDF5 weights; got {softmax} with {weights}")
    if kind == TASK and (inside := task_weights(opened(weights))) is not None:
        return read_task_model(inside, options_file, prefix)
    options = read_options(options_file)
    if kind == STATE:
        return read_allennlp_state(weights, options, prefix=prefix), options
    _refuse_prefix(prefix, weights)
    if kind == CHECKPOINT:
        return read_bilm_checkpoint(weights, options), options
    return read_bilm_hdf5(weights, options, softmax_file=softmax), options


def _refuse_prefix(prefix: str | None, weights: PathLike) -> None:
    if prefix is not None:
        raise CheckpointError(
            f"prefix chooses one of several biLMs in an AllenNLP model; {weights} is no such model; leave prefix out"
        )


def _refuse_address(name: str, path: PathLike | None) -> None:
    if path is not None and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", os.fspath(path)):
        raise CheckpointError(f"{name} must be a path; got the address {path}; download the file and give its path")
