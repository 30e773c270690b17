"""A whole pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.files import folder_lock
from elmo_fast.pretrain.checkpoint import save_model
from elmo_fast.pretrain.config import PretrainConfig, validate
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.log import memory_in_use
from elmo_fast.pretrain.plan import describe_plan, heldout_interval
from elmo_fast.pretrain.processes import join_processes, local_device
from elmo_fast.pretrain.start import start_run
from elmo_fast.pretrain.trainer import LanguageModelTrainer, TrainingLost
from elmo_fast.process import StopRequest
from elmo_fast.progress import duration
from elmo_fast.text import Vocabulary
from elmo_fast.threads import torch_threads

# A line at least this often, however slow the steps are.
LONGEST_SILENCE = 30.0
# Exchanged between the processes like the numbers of signals, which are higher.
_TIME_IS_UP = 1


@dataclass(frozen=True)
class TrainingOutcome:
    """How a run ended. steps taken in all; seconds of training; stopped_by: "steps", "time" or "interrupt".

    signal: the number of the signal that interrupted it, in any of the processes; else 0.
    """

    steps: int
    seconds: float
    stopped_by: str
    signal: int = 0


def train(trainer: LanguageModelTrainer) -> TrainingOutcome:
    """Runs to the last step, the end of the time, or Ctrl-C; saves at intervals and, in every case, at the end."""
    run, progress = trainer.config.run, trainer.progress
    progress.start()
    interval = heldout_interval(trainer.config, progress.total_steps)
    saved, evaluated = progress.step, trainer.processes.run_on_leader(lambda: trainer.record.evaluated_at)
    with StopRequest() as request:
        while not (stop := _reason_to_stop(trainer, request)):
            trainer.step()
            if progress.step % run.log_interval == 0 or progress.since_report > LONGEST_SILENCE:
                report_steps(trainer)
            if progress.step % run.checkpoint_interval == 0 and progress.step < progress.total_steps:
                saved = _try_to_save(trainer, saved)
            if progress.step % interval == 0 and progress.step < progress.total_steps:
                evaluated = progress.step
                with progress.paused():
                    trainer.evaluate()
        report_steps(trainer)
        if saved != progress.step:
            trainer.save()
        if stop != "interrupt" and evaluated != progress.step:
            trainer.evaluate()
    return TrainingOutcome(progress.step, progress.seconds, stop, request.signal if stop == "interrupt" else 0)


def _try_to_save(trainer: LanguageModelTrainer, before: int) -> int:
    """Saves; the step of the newest checkpoint: a disk that is full now may not be at the next interval."""
    try:
        with trainer.progress.paused():
            trainer.save()
    except TrainingLost:
        raise
    except (ElmoFastError, OSError) as error:
        trainer.record.say(f"NOT SAVED after step {trainer.progress.step}: {error}; training continues")
        return before
    return trainer.progress.step


def _reason_to_stop(trainer: LanguageModelTrainer, request: StopRequest) -> str:
    progress = trainer.progress
    if progress.step >= progress.total_steps:
        return "steps"
    over = progress.max_seconds is not None and progress.sitting >= progress.max_seconds
    told = trainer.processes.max_(request.signal or _TIME_IS_UP * over)
    if told > _TIME_IS_UP:
        request.signal = told
        trainer.record.say(f"interrupted after step {progress.step}: saving")
        return "interrupt"
    return "time" if told else ""


def report_steps(trainer: LanguageModelTrainer) -> None:
    """Reports the steps since the last report, if there were any."""
    if trainer.progress.has_news:
        row = trainer.progress.report()
        means = row["loss_forward"], row["loss_backward"], row["gradient_norm"]
        trainer.check_finite(f"up to step {trainer.progress.step}", *means)
        row |= {"learning_rate": trainer.rate, "memory_bytes": memory_in_use(trainer.device)}
        trainer.record.step(row, trainer.progress.line(row))


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
