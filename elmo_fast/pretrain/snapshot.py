"""All that a run needs to go on as if it had never stopped: beside the model, what the optimiser and the rows hold."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from elmo_fast.checkpoints import load_folder
from elmo_fast.errors import CheckpointError
from elmo_fast.files import sha256_of
from elmo_fast.pretrain.checkpoint import save_model
from elmo_fast.pretrain.language_model import LanguageModel, State
from elmo_fast.shortage import reader

POSITION_FILE, OPTIMISER_FILE, ROWS_FILE = "position.json", "optimiser.safetensors", "rows.safetensors"
FORMAT = "elmo_fast training position"
VERSION = 1


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a run stands, and of which run it is.

    step: taken; words: read; seconds: of training; fingerprint: of the corpus; rows: R; unroll_steps: T; seed;
    shuffle; optimiser: its name; model: the architecture, as ModelConfig's fields; vocabulary: a digest of
    its words; unreported: losses and gradient norm of each step since the last report; loss: its name (that of runs
    from before there was another).
    """

    step: int
    words: int
    seconds: float
    fingerprint: str
    rows: int
    unroll_steps: int
    seed: int
    shuffle: bool
    optimiser: str
    model: dict[str, Any]
    vocabulary: str
    unreported: list[list[float]]
    loss: str = "sampled_softmax"


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A checkpoint read back: position, the model's weights, the optimiser's tensors, the LSTM state of all R rows."""

    position: Position
    weights: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    state: State | None


def write_snapshot(
    folder: pathlib.Path,
    model: LanguageModel,
    optimiser: torch.optim.Optimizer,
    state: State | None,
    position: Position,
) -> None:
    """Writes the model and what is beside it into `folder`; position.json, with the others' digests, comes last.

    state: of all R rows, (h [L, 2, R, D], c [L, 2, R, H]), on the CPU. Raises CheckpointError when the disk does not
    take it.
    """
    save_model(folder, model, position.step)
    rows = {} if state is None else {"h": state[0], "c": state[1]}
    digests = {
        name: _write_tensors(folder / name, tensors)
        for name, tensors in ((OPTIMISER_FILE, _optimiser_tensors(model, optimiser)), (ROWS_FILE, rows))
    }
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "position": dataclasses.asdict(position), "sha256": digests}, indent=2
    )
    (folder / POSITION_FILE).write_text(text + "\n", encoding="utf-8")


@reader
def read_snapshot(folder: pathlib.Path) -> Snapshot:
    """The checkpoint in `folder`; CheckpointError names the file that is missing, damaged or of another kind."""
    from safetensors.torch import load_file

    path = folder / POSITION_FILE
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if (told["format"], told["version"]) != (FORMAT, VERSION):
            raise CheckpointError(f"{path}: version {told['version']!r} of {told['format']!r}; this reads {VERSION}")
        position, digests = Position(**told["position"]), told["sha256"]
        for name in (OPTIMISER_FILE, ROWS_FILE):
            if sha256_of(folder / name) != digests[name]:
                raise CheckpointError(f"{folder / name}: damaged: its digest is not the one in {POSITION_FILE}")
        rows = load_file(folder / ROWS_FILE)
        optimiser = load_file(folder / OPTIMISER_FILE)
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: damaged, or not a checkpoint of training ({error!r})") from error
    weights, _ = load_folder(folder)
    return Snapshot(position, weights, optimiser, (rows["h"], rows["c"]) if rows else None)


def load_optimiser(model: LanguageModel, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Gives the optimiser the state that a snapshot holds.

    Raises CheckpointError where a tensor is missing or has another shape than its parameter.
    """
    names = [name for name, _ in model.trained()]
    state: dict[int, dict[str, Tensor]] = {}
    for full, tensor in tensors.items():
        key, _, name = full.partition("/")
        state.setdefault(names.index(name), {})[key] = tensor
    for index, (name, parameter) in enumerate(model.trained()):
        bad = [k for k, t in state.get(index, {}).items() if t.dim() and t.shape != parameter.shape]
        if bad or (optimiser.state.get(parameter) and index not in state):
            raise CheckpointError(f"{OPTIMISER_FILE}: wanted the optimiser's tensors for {name}, found others")
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def _optimiser_tensors(model: LanguageModel, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{key}/{name}": torch.as_tensor(value).detach().cpu().contiguous()
        for name, parameter in model.trained()
        for key, value in optimiser.state[parameter].items()
    }


def _write_tensors(path: pathlib.Path, tensors: dict[str, Tensor]) -> str:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: cannot be written ({error})") from error
    return sha256_of(path)
