"""A dry run: what a run takes, measured in a few steps of it, in a folder that is then removed."""

import dataclasses
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable

import torch

from elmo_fast._io.atomic_file import free_bytes
from elmo_fast._runtime.memory import available, resident, size
from elmo_fast._runtime.progress import duration
from elmo_fast.corpus import is_prepared
from elmo_fast.corpus.pieces import bytes_of_text
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.config import PretrainConfig, validate
from elmo_fast.pretrain.corpora import CORPUS_FOLDER
from elmo_fast.pretrain.processes import join_processes, local_device
from elmo_fast.pretrain.run import Run
from elmo_fast.pretrain.trainer import LONGEST_UNSAVED, Trainer

# Steps of a dry run that warm up, and steps that it measures; fewer if they take so many seconds, but one at least.
# The first steps allocate memory and fill caches, and a processor that was idle is faster for a moment.
WARM_UP_STEPS, WARM_UP_SECONDS = 3, 10.0
MEASURED_STEPS, MEASURED_SECONDS = 20, 30.0
# Longer text is not prepared for a dry run: that would take minutes, and the room of a temporary folder.
MOST_TEXT = 1 << 28


def dry_run(
    config: PretrainConfig, *, report: Callable[[str], None] = print, device: torch.device | str = "cpu"
) -> None:
    """Report what `pretrain` would take: weights, memory, disk, steps, and hours at the speed of a few steps.

    It is a run in a temporary folder, whose steps train a model that is then dropped. Leaves nothing behind.
    Raises ElmoFastError with every complaint about the configuration.
    """
    validate(config)
    data, save_dir = config.data, pathlib.Path(config.run.save_dir)
    if not is_prepared(data.train_prefix):
        if is_prepared(save_dir / CORPUS_FOLDER):
            data = dataclasses.replace(data, train_prefix=str(save_dir / CORPUS_FOLDER))
        elif (text := bytes_of_text(data.train_prefix, data.format_in)) > MOST_TEXT:
            raise ElmoFastError(
                f"{data.train_prefix} has {size(text)}, more than a dry run reads: run elmo-fast prepare, and give its "
                "folder as train_prefix"
            )
    with join_processes(local_device(str(device))) as processes:
        folder = processes.run_on_leader(lambda: tempfile.mkdtemp(prefix="elmo-fast-"))
        try:
            here = dataclasses.replace(config, data=data, run=dataclasses.replace(config.run, save_dir=folder))
            with Run.begin(here, report, device) as run:
                trainer = run.build(*run.open_text())
                warm_up, _, _ = _timed(trainer, WARM_UP_STEPS, WARM_UP_SECONDS)
                steps, seconds, words = _timed(trainer, MEASURED_STEPS, MEASURED_SECONDS)
                if processes.leads:  # the folder is there until the leader has said all
                    for line in (_steps(trainer), *_room(trainer, save_dir)):
                        run.say(line)
                    run.say(_speed(trainer, warm_up, steps, seconds, words))
        finally:
            if processes.leads:
                shutil.rmtree(folder)


def _timed(trainer: Trainer, most: int, limit: float) -> tuple[int, float, int]:
    """Take steps, `most` of them or as many as begin within `limit` seconds; return steps, seconds and words."""
    before, began, steps, took = trainer.progress.words, time.perf_counter(), 0, 0.0
    while steps == 0 or trainer.processes.max_(int(steps < most and took < limit)):
        float(trainer.step().gradient_norm)  # waits for a GPU
        steps, took = steps + 1, time.perf_counter() - began
    return steps, took, trainer.progress.words - before


def _steps(trainer: Trainer) -> str:
    """Describe the steps, checkpoints and evaluations of a run."""
    run = trainer.config.run
    parts = [f"{trainer.progress.total_steps:,} steps, {trainer.stream.steps_per_epoch:,} per epoch"]
    if run.max_seconds:
        parts[0] += f", or {duration(run.max_seconds)}"
    if trainer.processes.distributed:
        rows = trainer.processes.assign_rows(trainer.config.optimizer.batch_size)[1]
        parts.append(f"{rows} rows in each of {trainer.processes.size} processes")
    parts.append(f"a checkpoint every {run.checkpoint_interval:,} steps or {duration(LONGEST_UNSAVED)}")
    if trainer.heldout is not None:
        seconds = trainer.evaluation_seconds
        sooner = f" or {duration(seconds)}" if seconds else ""
        ends = f", at most {run.patience:,} times without a better perplexity" if run.patience else ""
        parts.append(f"held-out text every {trainer.evaluation_steps:,} steps{sooner} and at the end{ends}")
    return f"plan   {' | '.join(parts)}"


def _room(trainer: Trainer, save_dir: pathlib.Path) -> tuple[str, str]:
    """Describe the memory that the steps took, all that this process holds included, and the room of the run's files.

    That is told by the tensors that it would save.
    """
    numbers: tuple[int | None, ...] = resident(peak=True), available()
    if trainer.device.type == "cuda":
        numbers = torch.cuda.max_memory_allocated(trainer.device), torch.cuda.mem_get_info(trainer.device)[0]
    peak, left = ("not known on this system" if each is None else size(each) for each in numbers)
    run, model = trainer.config.run, trainer.model.checkpoint_state().values()
    sums = (each for state in trainer.optimizer.state.values() for each in state.values() if torch.is_tensor(each))
    weights, rows = sum(each.nbytes for each in model), sum(each.nbytes for each in trainer.state or ())
    checkpoint = weights + sum(each.nbytes for each in sums) + rows * trainer.processes.size
    text = sum(file.stat().st_size for file in (trainer.record.folder / CORPUS_FOLDER).glob("*"))
    # While the newest is written, none has been removed; the model lies in the folder itself, too.
    needed = (run.keep_checkpoints + 1 + run.keep_best) * checkpoint + weights + text
    free = free_bytes(save_dir)
    memory = f"memory {peak} per process at the peak of these steps; {left} more are free on this machine"
    return memory, (
        f"disk   about {size(needed)} in save_dir: checkpoints of {size(checkpoint)} each"
        + (f", the prepared text {size(text)}" if text else "")
        + f"; {size(free)} are free"
        + (": too few; lower keep_checkpoints, or give a save_dir on another disk" if needed > free else "")
    )


def _speed(trainer: Trainer, warm_up: int, steps: int, seconds: float, words: int) -> str:
    """Describe the time of a run at the speed of some steps."""
    limit, whole = trainer.config.run.max_seconds, trainer.progress.total_steps * seconds / steps
    return (
        f"speed  {words / seconds:,.0f} tokens/s, measured here in {steps} steps after {warm_up}: "
        f"{trainer.progress.total_steps:,} steps take about {duration(whole)}, evaluations and saves apart"
        + (f"; max_seconds ends the run after {duration(limit)}" if limit is not None and limit < whole else "")
    )
