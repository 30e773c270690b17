"""The loop of a pretraining run: steps, and at intervals reports, saves and evaluations, until something stops it."""

from dataclasses import dataclass

from elmo_fast.errors import ElmoFastError
from elmo_fast.interrupts import StopRequest
from elmo_fast.pretrain.log.progress import memory_in_use
from elmo_fast.pretrain.start.plan import heldout_interval
from elmo_fast.pretrain.trainer import LanguageModelTrainer, TrainingLost

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
