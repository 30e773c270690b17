"""A whole pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import torch

from elmo_fast.checkpoints import save_folder
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import folder_lock
from elmo_fast.pretrain.config import PretrainConfig, validate
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.language_model import LanguageModel
from elmo_fast.pretrain.plan import describe_plan
from elmo_fast.pretrain.processes import join_processes, local_device
from elmo_fast.pretrain.start import start_run
from elmo_fast.pretrain.trainer import LanguageModelTrainer, train
from elmo_fast.progress import duration
from elmo_fast.text import Vocabulary
from elmo_fast.threads import torch_threads

_WHY_STOPPED = {
    "steps": "max_steps or n_epochs is reached",
    "time": "max_seconds is reached",
    "interrupt": "a signal interrupted it",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind.

    steps: taken in all; seconds: of training, in all; stopped_by: "steps", "time" or "interrupt"; signal: number of the
    signal that interrupted it, in any of the processes, else 0; heldout: perplexity, where held-out text was named.
    """

    steps: int
    seconds: float
    stopped_by: str
    signal: int
    model: LanguageModel
    vocabulary: Vocabulary
    folder: pathlib.Path
    heldout: Perplexity | None


def pretrain(
    config: PretrainConfig,
    *,
    report: Callable[[str], None] = print,
    device: torch.device | str = "cpu",
) -> Run:
    """Train as configured and leave in save_dir: the model, vocab.txt, pretrain.yaml, metrics.jsonl, checkpoints.

    Resumes from the newest checkpoint of save_dir, if there is one. Under torchrun all processes train together.
    report: takes each line for people, in the process that leads.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = local_device(str(device))
    folder = pathlib.Path(config.run.save_dir)
    with join_processes(device) as processes, _settings(config, device), contextlib.ExitStack() as held:
        processes.run_on_leader(lambda: held.enter_context(folder_lock(folder)))
        say = report if processes.leads else lambda line: None
        return train_and_save(start_run(config, folder, processes, device, say, held), folder)


def train_and_save(trainer: LanguageModelTrainer, folder: pathlib.Path) -> Run:
    """Train to the end and write the model into the run's folder itself."""
    stopped_by, signal = train(trainer)
    steps, seconds, model = trainer.progress.step, trainer.progress.seconds, trainer.model
    if trainer.processes.leads:
        save_folder(folder, model.checkpoint_state(), model.options, extra={"pretraining_step": steps})
    trainer.record.say(
        f"done   {steps:,} steps, {duration(seconds)} in all; {_WHY_STOPPED[stopped_by]}; model in {folder}"
    )
    return Run(steps, seconds, stopped_by, signal, model, trainer.corpus.vocabulary, folder, trainer.perplexity)


def dry_run(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Report what `pretrain` would do: weights, memory, tokens per step, steps. Writes and trains nothing.

    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    device = local_device(str(device))
    with join_processes(device) as processes:
        for line in describe_plan(config, device, processes) if processes.leads else ():
            report(line)


@contextlib.contextmanager
def _settings(config: PretrainConfig, device: torch.device) -> Iterator[None]:
    """Set the number of threads, and tf32 for the large products of a GPU, while open."""
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
