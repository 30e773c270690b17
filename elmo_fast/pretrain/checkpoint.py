"""A run's checkpoints: what they hold (position, model, optimizer, LSTM states), and their saving and removal.

A resumed run is as one that never stopped.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from elmo_fast.checkpoints import (
    CHECKPOINTS,
    VOCABULARY,
    file_beside,
    load_folder,
    put_model,
    saved_steps,
    step_name,
)
from elmo_fast.checkpoints.safetensors_folder import write_tensors
from elmo_fast.corpus import Corpus
from elmo_fast.errors import CheckpointError, ElmoFastError, read_failures_named
from elmo_fast.fields import read_json, typed
from elmo_fast.files import flush, remove_leftovers
from elmo_fast.manifest import check_older, check_written, settle, writing_together
from elmo_fast.memory import reader
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig
from elmo_fast.pretrain.language_model import LanguageModel

_UNFINISHED = ".unfinished-"


def finish_saves(run: pathlib.Path) -> None:
    """Complete the saves in a run's folder that were killed while they moved their files up, and remove other ones.

    Raises CheckpointError where files cannot be moved up.
    """
    for folder in (run, *(run / CHECKPOINTS).glob("[!.]*/")):
        settle(folder)
    remove_unfinished(run)


def remove_unfinished(run: pathlib.Path) -> None:
    """Remove what killed saves have left in a run's folder."""
    remove_leftovers(run)
    for path in (run / CHECKPOINTS).glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def find_vocabulary_file(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Return vocab.txt of a run, given its folder or one of its checkpoints.

    Raises ElmoFastError when there is none.
    """
    if (path := file_beside(folder)) is not None:
        return path
    raise ElmoFastError(f"{folder} has no {VOCABULARY}; name the vocabulary it was trained with by --vocab_file")


POSITION_FILE, OPTIMIZER_FILE, ROWS_FILE = "position.json", "optimiser.safetensors", "rows.safetensors"


# The checkpoint of the best held-out perplexity, in the folder of the others.
BEST = "best"


@dataclasses.dataclass(frozen=True)
class BestEvaluation:
    """The best evaluation of held-out text so far.

    perplexity: None before the first; step: after which it was made; worse: how many evaluations since have not been
    better; text: fingerprint of the held-out text; last: step of the newest evaluation, -1 before the first, None
    where an older version wrote the checkpoint; seconds: of training when the newest evaluation ended; took: its
    seconds. Bests of different clocks are equal.

    A checkpoint has it when all that follows from the evaluation is on the disk: what is later comes again.
    """

    perplexity: float | None = None
    step: int = 0
    worse: int = 0
    text: str = ""
    last: int | None = None
    seconds: float = dataclasses.field(default=0.0, compare=False)
    took: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass(frozen=True)
class RunPosition:
    """The position of a run, and what identifies the run.

    step: taken; words: read; seconds: of training; fingerprint: of the corpus; rows: R; unroll_steps: T; seed;
    shuffle; optimiser: its name; model: the architecture, as ModelConfig's fields; vocabulary: a digest of
    its words; unreported: losses and gradient norm of each step since the last report; loss: its name (older runs knew
    one); best: of the
    evaluations so far; exact_shards: of older runs, whose gradients were added in another order.
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
    best: BestEvaluation = BestEvaluation()
    exact_shards: int | None = None


def identity(config: PretrainConfig, corpus: Corpus) -> dict[str, Any]:
    """Return the fields of RunPosition that identify a run."""
    optimizer = config.optimizer
    return {
        "fingerprint": corpus.fingerprint,
        "rows": optimizer.batch_size,
        "unroll_steps": optimizer.unroll_steps,
        "seed": config.run.seed,
        "shuffle": config.data.shuffle,
        "optimiser": optimizer.optimiser,
        "model": dataclasses.asdict(config.model),
        "vocabulary": corpus.vocabulary.digest,
        "loss": optimizer.loss,
    }


@dataclasses.dataclass(frozen=True)
class _PositionFile:
    """The content of position.json; sha256: digests of the folder's files of tensors, by older versions."""

    format: Literal["elmo_fast training position"]
    version: Literal[1]
    position: RunPosition
    sha256: dict[str, str] = dataclasses.field(default_factory=dict)


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
    remove_unfinished(run)
    if target.exists():
        write_training_state(target, model, optimizer, rows, position)
    else:
        unfinished = folder / f"{_UNFINISHED}{target.name}"
        unfinished.mkdir()
        try:
            write_training_state(unfinished, model, optimizer, rows, position)
            flush(unfinished)
            os.replace(unfinished, target)
            flush(folder)
        finally:
            remove_unfinished(run)
    if not best:
        remove_older(run, keep, position.step)
    return target


def remove_older(run: pathlib.Path, keep: int, step: int) -> None:
    """Remove the checkpoints before that of `step`, which is whole, except for the newest `keep` - 1 of them."""
    older = [path for number, path in saved_steps(run) if number < step]
    for path in older[: len(older) + 1 - keep]:
        # First under a name that no reader looks for; what cannot be removed now is at the next save.
        shutil.rmtree(path.rename(path.with_name(f"{_UNFINISHED}{path.name}")), ignore_errors=True)


def write_training_state(
    folder: pathlib.Path,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Tensor | None],
    position: RunPosition,
) -> None:
    """Write the model, the optimizer's tensors, the LSTM states and the position together, with a manifest."""
    tensors = {
        f"{key}/{name}": torch.as_tensor(value).detach().cpu().contiguous()
        for name, parameter in model.trained()
        for key, value in optimizer.state[parameter].items()
    }
    states = {name: each for name, each in zip("hc", rows, strict=False) if each is not None}
    content = {"format": "elmo_fast training position", "version": 1, "position": dataclasses.asdict(position)}
    with writing_together(folder) as new:
        put_model(new, model.checkpoint_state(), model.options, extra={"pretraining_step": position.step})
        write_tensors(new / OPTIMIZER_FILE, tensors, shown=OPTIMIZER_FILE)
        write_tensors(new / ROWS_FILE, states, shown=ROWS_FILE)
        (new / POSITION_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@reader
def read_training_state(folder: pathlib.Path) -> TrainingState:
    """Read the checkpoint in `folder`; CheckpointError names the file that is missing, damaged or of another kind."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / POSITION_FILE
    whole = check_written(folder, [POSITION_FILE, OPTIMIZER_FILE, ROWS_FILE])
    content = read_json(path, _PositionFile)
    typed(content.position.model, ModelConfig, f"{path}: position.model")
    for name in () if whole else (OPTIMIZER_FILE, ROWS_FILE):
        check_older(folder / name, content.sha256.get(name), POSITION_FILE)
    with read_failures_named(path):
        try:
            rows = load_file(folder / ROWS_FILE)
            optimizer = load_file(folder / OPTIMIZER_FILE)
        except SafetensorError as error:
            raise CheckpointError(f"{folder}: {ROWS_FILE} or {OPTIMIZER_FILE} is damaged ({error})") from error
    unchecked = [name for name in (OPTIMIZER_FILE, ROWS_FILE) if name not in content.sha256]
    weights, _ = load_folder(folder, others=[POSITION_FILE, *unchecked])
    return TrainingState(content.position, weights, optimizer, (rows["h"], rows["c"]) if rows else None)


def load_optimizer(model: LanguageModel, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the optimizer's state from the tensors of a checkpoint.

    Raises CheckpointError where a tensor is missing or has another shape than its parameter.
    """
    names = [name for name, _ in model.trained()]
    state: dict[int, dict[str, Tensor]] = {}
    for full, tensor in tensors.items():
        key, _, name = full.partition("/")
        state.setdefault(names.index(name), {})[key] = tensor
    for index, (name, parameter) in enumerate(model.trained()):
        bad = [k for k, t in state.get(index, {}).items() if t.dim() and t.shape != parameter.shape]
        if bad or (optimizer.state.get(parameter) and index not in state):
            raise CheckpointError(f"{OPTIMIZER_FILE}: wanted the optimizer's tensors for {name}, found others")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
