"""What a run needs to resume with the same numbers: one file, replaced after each epoch."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from elmo_fast.checkpoints.safetensors_folder import write_tensors
from elmo_fast.errors import CheckpointError
from elmo_fast.files import replacing
from elmo_fast.json_files import parsed

STATE_FILE = "training.safetensors"
FORMAT = "elmo_fast task training 1"
_WEIGHTS, _BEST = "weights/", "best/"


@dataclasses.dataclass
class TrainingRecord:
    """How far a run is.

    epochs: a row for each that is done (see TaskTrainer); config: the fields that must not change; data: a digest of
    sentences, labels and input files.
    """

    epochs: list[dict[str, Any]]
    config: dict[str, Any]
    data: str


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that training changes, by name. Only these are saved."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


@torch.no_grad()
def load_weights(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Load `weights` into the parameters of the same names; CheckpointError lists those that do not fit."""
    wrong = sorted(set(wanted) ^ set(weights))
    wrong += [name for name in wanted if name in weights and wanted[name].shape != weights[name].shape]
    if wrong:
        raise CheckpointError(
            f"{os.fspath(path)}: is not of this configuration; missing, left over or of another shape: "
            f"{', '.join(wrong)}"
        )
    for name, parameter in wanted.items():
        parameter.copy_(weights[name])


def write_state(
    folder: pathlib.Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    best: Mapping[str, Tensor],
    position: TrainingRecord,
) -> None:
    """Writes weights, the optimiser's tensors, the best epoch's weights and the record to one file in `folder`."""
    weights = trained_weights(model)
    tensors = {f"{_WEIGHTS}{name}": each for name, each in weights.items()}
    tensors |= {f"{_BEST}{name}": each for name, each in best.items()}
    for name, each in weights.items():
        tensors |= {f"{key}/{name}": torch.as_tensor(value) for key, value in optimiser.state[each].items()}
    tensors = {name: each.detach().cpu().contiguous() for name, each in tensors.items()}
    told = {"format": FORMAT, "position": json.dumps(dataclasses.asdict(position)), "digest": _digest(tensors)}
    save_tensors(folder / STATE_FILE, tensors, told | {"position sha256": _position_digest(told)})


def read_state(
    folder: pathlib.Path, model: nn.Module, optimiser: torch.optim.Optimizer, check: Callable[[TrainingRecord], None]
) -> tuple[TrainingRecord, dict[str, Tensor]] | None:
    """Loads the state in `folder` into model and optimiser; returns the record and the best epoch's weights.

    check: called with the record first; it may raise. Returns None if there is no such file. Raises CheckpointError if
    it is damaged or of another model.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return None
    tensors, told = load_tensors(path)
    wanted = {"format": FORMAT, "digest": _digest(tensors), "position sha256": _position_digest(told)}
    # Older versions wrote no digest of the position.
    known = {name: value for name, value in told.items() if name != "position"}
    if not (known.items() <= wanted.items() and known.keys() >= {"format", "digest"}):
        raise CheckpointError(
            f"{path}: damaged, or of another version; begin anew with resume: false, or remove the file"
        )
    position = parsed(told.get("position", ""), TrainingRecord, f"{path}: position")
    check(position)
    load_weights(trained_weights(model), _section(tensors, _WEIGHTS), path)
    names = {id(each): name for name, each in trained_weights(model).items()}
    numbers = {names[id(each)]: n for n, each in enumerate(e for g in optimiser.param_groups for e in g["params"])}
    state: dict[int, dict[str, Tensor]] = {}
    for key, each in tensors.items():
        if not key.startswith((_WEIGHTS, _BEST)):
            kind, _, name = key.partition("/")
            state.setdefault(numbers[name], {})[kind] = each
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    return position, _section(tensors, _BEST)


def save_tensors(path: pathlib.Path, tensors: dict[str, Tensor], told: dict[str, str]) -> None:
    """Writes a safetensors file with metadata, complete or not at all; CheckpointError if it cannot be written."""
    with replacing(path) as temporary:
        write_tensors(temporary, tensors, told, path)


def load_tensors(path: pathlib.Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file; CheckpointError if it is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: there is no such file") from error
    except SafetensorError as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error


def _section(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


def _position_digest(told: Mapping[str, str]) -> str:
    return hashlib.sha256(told.get("position", "").encode()).hexdigest()


def _digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(name.encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
