"""Where a model lies: a folder of the own format, a folder of bilm-tf's, or a pair of files."""

import os
import re
from pathlib import Path

from ..errors import CheckpointError
from .allennlp_state import read_allennlp_state
from .bilm_hdf5 import read_bilm_hdf5
from .options import ElmoOptions, read_options
from .safetensors_folder import CONFIG, WEIGHTS, load_folder
from .state import State

PathLike = str | os.PathLike[str]
_TORCH_SUFFIXES = (".th", ".pt", ".pth", ".bin")


def load_checkpoint(
    model: PathLike | None = None, options_file: PathLike | None = None, weight_file: PathLike | None = None
) -> tuple[State, ElmoOptions]:
    """The state and the options of a model: from a folder, or from a pair of files.

    model: a folder with config.json and model.safetensors, or with options.json and model.hdf5 (else its first *.hdf5).
    options_file, weight_file: bilm-tf's options.json, and HDF5 weights or a .th/.pt state dictionary of AllenNLP's.
    Raises: CheckpointError naming the file and what is wrong with it.
    """
    for name, path in (("model", model), ("options_file", options_file), ("weight_file", weight_file)):
        _refuse_address(name, path)
    if model is not None:
        if options_file is not None or weight_file is not None:
            raise CheckpointError("wanted either model or the pair options_file and weight_file, found both")
        return _from_folder(Path(model))
    if options_file is None or weight_file is None:
        raise CheckpointError(
            f"wanted model, or options_file and weight_file; found {options_file=!s}, {weight_file=!s}"
        )
    return _from_pair(options_file, weight_file)


def _refuse_address(name: str, path: PathLike | None) -> None:
    if path is not None and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", os.fspath(path)):
        raise CheckpointError(f"{name}: wanted a path, found the address {path}; download it and give the file's path")


def _from_folder(folder: Path) -> tuple[State, ElmoOptions]:
    if not folder.is_dir():
        hint = "; for two files, give options_file and weight_file" if folder.exists() else ""
        raise CheckpointError(f"{folder}: wanted a folder with a model, found {'a file' if hint else 'nothing'}{hint}")
    if (folder / CONFIG).exists() and ((folder / WEIGHTS).exists() or not (folder / "options.json").exists()):
        return load_folder(folder)
    weights = folder / "model.hdf5"
    if not weights.exists():
        weights = next(iter(sorted(folder.glob("*.hdf5"))), weights)
    if not (folder / "options.json").exists() or not weights.exists():
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:10]) or "nothing"
        raise CheckpointError(f"{folder}: wanted {CONFIG} and {WEIGHTS}, or options.json and a *.hdf5, found {names}")
    return _from_pair(folder / "options.json", weights)


def _from_pair(options_file: PathLike, weight_file: PathLike) -> tuple[State, ElmoOptions]:
    options = read_options(options_file)
    if Path(weight_file).suffix.lower() in _TORCH_SUFFIXES:
        return read_allennlp_state(weight_file, options), options
    return read_bilm_hdf5(weight_file, options), options
