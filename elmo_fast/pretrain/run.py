"""A whole pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import torch

from elmo_fast.durations import duration
from elmo_fast.errors import ElmoFastError
from elmo_fast.lock import folder_lock
from elmo_fast.pretrain.checkpoint import save_model
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.config_validation import validate
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.loop import TrainingOutcome, train
from elmo_fast.pretrain.processes import join_processes, local_device
from elmo_fast.pretrain.start.plan import describe_plan
from elmo_fast.pretrain.start.start_run import start_run
from elmo_fast.pretrain.trainer import LanguageModelTrainer
from elmo_fast.text import Vocabulary
from elmo_fast.threads import torch_threads

_WHY_STOPPED = {
    "steps": "max_steps or n_epochs is reached",
    "time": "max_seconds is reached",
    "interrupt": "a signal interrupted it",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind: its end, the trained model and, where held-out text was named, its perplexity."""

    outcome: TrainingOutcome
    model: LanguageModel
    vocabulary: Vocabulary
    folder: pathlib.Path
    heldout: Perplexity | None


@contextlib.contextmanager
def _settings(config: PretrainConfig, device: torch.device) -> Any:
    """Threads, and tf32 for the large products of a GPU, while open."""
    before = torch.backends.cuda.matmul.allow_tf32
    if config.run.precision == "tf32":
        if device.type != "cuda":
            raise ElmoFastError(f"precision tf32 needs an NVIDIA GPU; got device {device}: give float32 or bfloat16")
        torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with torch_threads(config.run.threads):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def pretrain(
    config: PretrainConfig,
    *,
    report: Callable[[str], None] = print,
    device: torch.device | str = "cpu",
) -> Run:
    """Trains as configured and leaves in save_dir: the model, vocab.txt, pretrain.yaml, metrics.jsonl, checkpoints.

    Resumes from the newest checkpoint of save_dir, if there is one. Under torchrun all processes train together.
    report: takes each line for people, in the process that leads.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = local_device(str(device))
    folder = pathlib.Path(config.run.save_dir)
    with join_processes(device) as processes, _settings(config, device), contextlib.ExitStack() as held:
        say = report if processes.leads else _nothing
        processes.run_on_leader(lambda: held.enter_context(folder_lock(folder)))
        return train_and_save(start_run(config, folder, processes, device, say, held), folder)


def dry_run(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Reports what `pretrain` would do: weights, memory, tokens per step, steps. Writes and trains nothing.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = local_device(str(device))
    with join_processes(device) as processes:
        for line in describe_plan(config, device, processes) if processes.leads else ():
            report(line)


def _nothing(line: str) -> None:
    """Says nothing."""


def train_and_save(trainer: LanguageModelTrainer, folder: pathlib.Path) -> Run:
    """Trains to the end and writes the model into the run's folder itself."""
    record = trainer.record
    for line in trainer.describe():
        record.say(line)
    outcome = train(trainer)
    if trainer.processes.leads:
        save_model(folder, trainer.model, outcome.steps)
    record.say(
        f"done   {outcome.steps:,} steps, {duration(outcome.seconds)} in all; {_WHY_STOPPED[outcome.stopped_by]}; "
        f"model in {folder}"
    )
    return Run(outcome, trainer.model, trainer.corpus.vocabulary, folder, trainer.perplexity)
