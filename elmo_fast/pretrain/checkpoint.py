"""A run's checkpoints: what they hold (position, model, optimizer, LSTM states), and their saving and removal.

A resumed run is as one that never stopped.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from elmo_fast._io.atomic_folder import finish_folder, read_folder, write_folder
from elmo_fast._io.fields import read_json, typed
from elmo_fast._io.locks import remove_folder, remove_leftovers
from elmo_fast.checkpoints import (
    CHECKPOINTS,
    put_model,
    saved_steps,
    step_name,
)
from elmo_fast.checkpoints.options import CONFIG
from elmo_fast.checkpoints.safetensors_folder import WEIGHTS, get_model, read_tensor_file, write_tensors
from elmo_fast.corpus import Corpus
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.language_model import LanguageModel


def finish_saves(run: pathlib.Path) -> None:
    """Complete the saves in a run's folder that were killed as they replaced files, and remove unfinished ones."""
    for folder in (run, *(run / CHECKPOINTS).glob("[!.]*/")):
        finish_folder(folder)
    for folder in (run, run / CHECKPOINTS):
        if folder.exists():
            remove_leftovers(folder)


POSITION_FILE, OPTIMIZER_FILE, ROWS_FILE = "position.json", "optimiser.safetensors", "rows.safetensors"


# The checkpoint of the best held-out perplexity, in the folder of the others.
BEST = "best"


@dataclasses.dataclass(frozen=True)
class BestEvaluation:
    """The best evaluation of held-out text so far.

    perplexity: None before the first; step: after which it was made; worse: how many evaluations since have not been
    better; text: fingerprint of the held-out text; last: step of the newest evaluation, -1 before the first; seconds:
    of training when it ended; took: its seconds. Equal ones may differ in these two.

    A checkpoint has it when all that follows from the evaluation is on the disk: what is later comes again.
    """

    perplexity: float | None = None
    step: int = 0
    worse: int = 0
    text: str = ""
    last: int = -1
    seconds: float = dataclasses.field(default=0.0, compare=False)
    took: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass(frozen=True)
class RunPosition:
    """The position of a run, and what identifies the run.

    step: taken; words: read; seconds: of training; fingerprint: of the corpus; rows: R; unroll_steps: T; seed;
    shuffle; optimiser: its name; model: the architecture, as ModelConfig's fields; vocabulary: a digest of
    its words; unreported: losses and gradient norm of each step since the last report; loss: its name; best: of the
    evaluations so far; train_bilm: false where the softmax alone is trained.
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
    loss: str
    best: BestEvaluation
    train_bilm: bool = True


# What stays the same in a run, besides batch_size (rows), the model's options and the text.
FIXED = ("unroll_steps", "seed", "shuffle", "optimiser", "loss", "train_bilm")


def identity(config: PretrainConfig, corpus: Corpus) -> dict[str, Any]:
    """Return the fields of RunPosition that identify a run."""
    flat = config.flat()
    text = {"fingerprint": corpus.fingerprint, "vocabulary": corpus.vocabulary.digest}
    model = {"rows": config.optimizer.batch_size, "model": dataclasses.asdict(config.model)}
    return text | model | {name: flat[name] for name in FIXED}


class _PositionFile(TypedDict):
    """The content of position.json."""

    format: Literal["elmo_fast training position"]
    version: Literal[1]
    position: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """A checkpoint read back: position, the model's weights, the optimizer's tensors, the LSTM state of all R rows."""

    position: RunPosition
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: LayerStates | None


def save_checkpoint(
    run: pathlib.Path,
    keep: int,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Tensor | None],
    position: RunPosition,
    *,
    best: bool = False,
) -> pathlib.Path:
    """Write the checkpoint run/checkpoints/step-N and return its folder; keep the newest `keep`.

    It appears under its name when it is complete and on the disk. best: write run/checkpoints/best instead, and remove
    none; rows: the LSTM states of all R rows, h [L, 2, R, D]
    and c [L, 2, R, H], on the CPU; empty before the first step. Raises CheckpointError or OSError if writing fails.
    """
    folder = run / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / (BEST if best else step_name(position.step))
    tensors = {
        f"{key}/{name}": torch.as_tensor(value, device="cpu").detach().contiguous()
        for name, parameter in model.trained()
        for key, value in optimizer.state[parameter].items()
    }
    states = {name: each for name, each in zip("hc", rows, strict=False) if each is not None}
    content = {"format": "elmo_fast training position", "version": 1, "position": dataclasses.asdict(position)}
    with write_folder(target) as new:
        put_model(new, model.checkpoint_state(), model.options, extra={"pretraining_step": position.step})
        write_tensors(new / OPTIMIZER_FILE, tensors)
        write_tensors(new / ROWS_FILE, states)
        (new / POSITION_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if not best:
        remove_older(run, keep, position.step)
    return target


def remove_older(run: pathlib.Path, keep: int, step: int) -> None:
    """Remove the checkpoints before that of `step`, which is whole, except for the newest `keep` - 1 of them."""
    older = [path for number, path in saved_steps(run) if number < step]
    for path in older[: len(older) + 1 - keep]:
        remove_folder(path)


def read_training_state(folder: pathlib.Path) -> TrainingState:
    """Read the checkpoint in `folder`; CheckpointError names the file that is missing, damaged or of another kind."""

    def read(folder: pathlib.Path) -> TrainingState:
        path = folder / POSITION_FILE
        content = read_json(path, _PositionFile)["position"]
        position = typed(content, RunPosition, f"{path}: position")
        typed(position.model, ModelConfig, f"{path}: position.model")
        rows, optimizer = (read_tensor_file(folder / name)[0] for name in (ROWS_FILE, OPTIMIZER_FILE))
        weights, _ = get_model(folder)
        return TrainingState(position, weights, optimizer, (rows["h"], rows["c"]) if rows else None)

    names = [POSITION_FILE, OPTIMIZER_FILE, ROWS_FILE, CONFIG, WEIGHTS]
    return read_folder(folder, names, read, warns=True)


def load_optimizer(model: LanguageModel, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the optimizer's state from the tensors of a checkpoint of the same run."""
    names = [name for name, _ in model.trained()]
    state: dict[int, dict[str, Tensor]] = {}
    for full, tensor in tensors.items():
        key, _, name = full.partition("/")
        state.setdefault(names.index(name), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
