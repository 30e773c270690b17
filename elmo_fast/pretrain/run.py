"""A whole pretraining run, from a configuration to a model on the disk; called again, it resumes."""

import contextlib
import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Iterator

import torch

from elmo_fast.checkpoints import save_folder
from elmo_fast.corpus import Corpus, is_prepared, open_corpus
from elmo_fast.errors import ElmoFastError
from elmo_fast.files import folder_lock
from elmo_fast.pretrain.config import PretrainConfig, validate
from elmo_fast.pretrain.corpora import CORPUS_FOLDER, target_counts
from elmo_fast.pretrain.evaluate import Perplexity
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.plan import (
    describe_corpus,
    describe_disk,
    describe_model,
    describe_steps,
    planned_steps,
    with_fitting_loss,
)
from elmo_fast.pretrain.processes import Processes, join_processes, local_device
from elmo_fast.pretrain.start import start_run
from elmo_fast.pretrain.trainer import LanguageModelTrainer, train
from elmo_fast.progress import duration
from elmo_fast.text import Vocabulary
from elmo_fast.threads import torch_threads

# Steps that a dry run measures, after one that warms up; fewer if they take so many seconds.
MEASURED_STEPS, MEASURED_SECONDS = 5, 30.0
_WHY_STOPPED = {
    "steps": "max_steps or n_epochs is reached",
    "patience": "held-out perplexity has not improved in `patience` evaluations",
    "time": "max_seconds is reached",
    "interrupt": "a signal interrupted it",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind.

    steps: taken in all; seconds: of training, in all; stopped_by: "steps", "patience", "time" or "interrupt"; signal:
    number of the signal that interrupted it, in any of the processes, else 0; heldout: perplexity, where held-out text
    was named.
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
        trainer = start_run(config, folder, processes, device, say, held)
        stopped_by, signal = train(trainer)
        steps, seconds, model = trainer.progress.step, trainer.progress.seconds, trainer.model
        if processes.leads:
            save_folder(folder, model.checkpoint_state(), model.options, extra={"pretraining_step": steps})
        say(f"done   {steps:,} steps, {duration(seconds)} in all; {_WHY_STOPPED[stopped_by]}; model in {folder}")
        return Run(steps, seconds, stopped_by, signal, model, trainer.corpus.vocabulary, folder, trainer.perplexity)


def dry_run(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Report what `pretrain` would do: weights, memory, disk, steps, and hours at the speed of a few steps.

    Writes nothing; the steps train a model that is then dropped. Raises ElmoFastError with every complaint about the
    configuration.
    """
    validate(config)
    device = local_device(str(device))
    with join_processes(device) as processes, _settings(config, device):
        for line in _plan(config, device, processes) if processes.leads else ():
            report(line)


def _plan(config: PretrainConfig, device: torch.device, processes: Processes) -> Iterator[str]:
    """Yield the lines of a dry run: all that is known without reading unprepared text."""
    folders = (config.data.train_prefix, pathlib.Path(config.run.save_dir) / CORPUS_FOLDER)
    prepared = next((folder for folder in folders if is_prepared(folder)), None)
    if prepared is None and config.data.vocab_file is None:
        yield (
            "plan   the text is not prepared and no vocab_file is given, so that nothing is known of the sizes; run "
            "elmo-fast prepare first, or name a vocab_file"
        )
        return
    corpus = None if prepared is None else open_corpus(prepared)
    vocabulary = Vocabulary.read(str(config.data.vocab_file)) if corpus is None else corpus.vocabulary
    lines: list[str] = []
    config = with_fitting_loss(config, len(vocabulary), lines.append)
    lines += describe_model(config, len(vocabulary), processes, device)
    yield from lines
    yield from describe_disk(config, len(vocabulary))
    if corpus is None:
        yield "plan   the text is not prepared, so that its words are not counted yet (elmo-fast prepare)"
        return
    optimizer = config.optimizer
    epoch = math.ceil(math.ceil(corpus.positions / optimizer.batch_size) / optimizer.unroll_steps)
    total = planned_steps(config, epoch)
    yield from describe_corpus(corpus)
    yield describe_steps(config, total, epoch, 0)
    if processes.distributed:
        yield "speed  measured in one process only: leave torchrun out"
    elif any(line.startswith("WARNING") for line in lines):
        yield "speed  not measured: memory would run out"
    else:
        yield _speed(config, corpus, total, device)


def _speed(config: PretrainConfig, corpus: Corpus, total: int, device: torch.device) -> str:
    """Time a few steps of a new model; describe the time of a run at their speed."""
    model = make_language_model(config, len(corpus.vocabulary), device, target_counts(corpus))
    record = RunLog(pathlib.Path(config.run.save_dir), silent=True)
    trainer = LanguageModelTrainer(config, model, corpus, record, device=device)
    ends: list[float] = []
    while len(ends) <= MEASURED_STEPS and (len(ends) < 2 or ends[-1] - ends[0] < MEASURED_SECONDS):
        float(trainer.step().gradient_norm)  # waits for a GPU
        ends.append(time.perf_counter())
    seconds = (ends[-1] - ends[0]) / (len(ends) - 1)
    tokens = config.optimizer.batch_size * config.optimizer.unroll_steps / seconds
    limit = config.run.max_seconds
    cut = limit is not None and limit < total * seconds
    return (
        f"speed  {tokens:,.0f} tokens/s, measured here in {len(ends) - 1} steps after the first: {total:,} steps take "
        f"about {duration(total * seconds)}, evaluations and saves apart"
        + (f"; max_seconds ends the run after {duration(limit)}" if cut and limit is not None else "")
    )


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
