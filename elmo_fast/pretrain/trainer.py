"""The loop of a pretraining run and all that it changes: steps, saves, evaluations, and when to stop."""

import dataclasses
import hashlib
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from elmo_fast._runtime.memory import bytes_of, resident
from elmo_fast._runtime.progress import StopRequest
from elmo_fast.checkpoints import CHECKPOINTS, saved_steps
from elmo_fast.corpus import Corpus
from elmo_fast.corpus.streams import Stream
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _graphs
from elmo_fast.pretrain.checkpoint import (
    BEST,
    BestEvaluation,
    RunPosition,
    TrainingState,
    identity,
    load_optimizer,
    remove_older,
    save_checkpoint,
)
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.evaluate import Perplexity, evaluate, gap_lines
from elmo_fast.pretrain.language_model import LanguageModel, make_input_reader
from elmo_fast.pretrain.log import RunLog, TrainingProgress
from elmo_fast.pretrain.optimizer import make_optimizer, rate_of_step
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step import Step, StepResult

# Evaluations of held-out text in a run whose configuration does not say after how many steps; and, where time decides,
# how many times as long as an evaluation training goes on before the next one.
EVALUATIONS, TRAINED_PER_EVALUATED = 10, 4
# Seconds between lines about training or an evaluation, and seconds of training without a checkpoint, at most.
LONGEST_SILENCE, LONGEST_UNSAVED = 10.0, 600.0
# Exchanged between the processes like the numbers of signals, which are higher.
_TIME_IS_UP = 1


def planned_steps(config: PretrainConfig, steps_per_epoch: int) -> int:
    """Return the number of steps of a run that no clock stops: n_epochs passes, or max_steps when that is less.

    A pass is every position of the text or, where n_train_tokens is given, that number of words, as in bilm-tf.
    """
    optimizer = config.optimizer
    if optimizer.n_train_tokens is not None:
        steps_per_epoch = max(1, optimizer.n_train_tokens // (optimizer.batch_size * optimizer.unroll_steps))
    steps = optimizer.n_epochs * steps_per_epoch
    return steps if config.run.max_steps is None else min(steps, config.run.max_steps)


class Trainer:
    """Trains a model on a corpus and saves as it goes; alone, or as one of several processes that share the rows.

    Everything that changes during a run is an attribute (model, optimizer, state, progress).

    config: of the run; model: trained in place, alike in all processes; corpus: encoded with the model's vocabulary;
    record: its log; resumed: the state to resume from; heldout: text to evaluate at intervals; processes: the processes
    that train together.

    Raises ElmoFastError when the rows cannot be split evenly.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: LanguageModel,
        corpus: Corpus,
        record: RunLog,
        *,
        resumed: TrainingState | None = None,
        heldout: Corpus | None = None,
        processes: Processes | None = None,
    ) -> None:
        optimizer, run = config.optimizer, config.run
        self.config, self.model, self.corpus, self.record, self.heldout = config, model, corpus, record, heldout
        self.device, self.processes = model.softmax_weight.device, processes or Processes()
        on_cpu = self.device.type == "cpu"
        first_row, row_count = self.processes.assign_rows(optimizer.batch_size, optimizer.micro_batches)
        self.stream = Stream(
            corpus,
            optimizer.batch_size,
            optimizer.unroll_steps,
            seed=run.seed if config.data.shuffle else None,
            first_row=first_row,
            row_count=row_count,
            ahead=not on_cpu,
            # On a GPU the device alone would know how many distinct words a part has.
            distinct_parts=0 if on_cpu or model.options.char_cnn is None else optimizer.micro_batches,
            sample=lambda number: self.update.samples(number),
        )
        self.optimizer = make_optimizer(optimizer, model)
        total = planned_steps(config, self.stream.steps_per_epoch)
        self.progress = TrainingProgress(total, run.max_seconds, model.loss.perplexity)
        # A tenth of the planned steps, but never less than from one report to the next, or of the time.
        self.evaluation_steps = run.heldout_interval or max(run.log_interval, math.ceil(total / EVALUATIONS))
        self.evaluation_seconds: float | None = None
        if heldout is not None and run.heldout_interval is None and run.max_seconds is not None:
            self.evaluation_seconds = run.max_seconds / EVALUATIONS
        self.state: LayerStates | None = None
        self.perplexity: Perplexity | None = None
        self.best = BestEvaluation()
        self._line, self._said = "", 0.0
        if resumed is not None:
            model.load(resumed.weights)
            load_optimizer(model, self.optimizer, resumed.optimizer)
            if resumed.state is not None:
                rows = slice(first_row, first_row + row_count)
                h, c = (each[:, :, rows].contiguous().to(self.device) for each in resumed.state)
                self.state = h, c
            self.progress.resume(resumed.position)
            self.best = self._known_best(resumed.position.best)
        self.update = Step(
            model,
            self.optimizer,
            make_input_reader(model.options, corpus, self.device),
            rows=optimizer.batch_size,
            first_row=first_row,
            clip_norm=optimizer.all_clip_norm_val,
            seed=run.seed,
            state_reset=optimizer.state_reset,
            micro_batches=optimizer.micro_batches,
            sparse=optimizer.optimiser == "adagrad",
            processes=self.processes,
            cuda_graph=run.cuda_graph,
        )

    def _known_best(self, best: BestEvaluation) -> BestEvaluation:
        """Return the best evaluation that a resumed run compares with.

        There is none if the held-out text is different, and no perplexity if the folder lacks the best checkpoint, as
        that of a branch does.
        """
        if self.heldout is None or best.text != self.heldout.fingerprint:
            return BestEvaluation(last=best.last, seconds=best.seconds, took=best.took)
        path = self.record.folder / CHECKPOINTS / BEST
        is_missing = self.config.run.keep_best and not self.processes.run_on_leader(path.exists)
        return dataclasses.replace(best, perplexity=None) if is_missing else best

    def summary(self) -> str:
        """Return the one line that a run says before it starts."""
        model, corpus, optimizer, progress = self.model, self.corpus, self.config.optimizer, self.progress
        bilm, loss = (sum(each.numel() for each in part.parameters()) for part in (model.bilm, model.loss))
        done = f" | resumes after step {progress.step:,}" if progress.step else ""
        if progress.step >= progress.total_steps:
            done += ": nothing is left to do; raise max_steps or n_epochs to train on"
        return (
            f"train  {bilm / 1e6:.2f}M weights in the biLM, {loss / 1e6:.2f}M in the softmax over "
            f"{len(corpus.vocabulary):,} words, {self.config.run.precision} on {self.device} | {corpus.tokens:,} words "
            f"of text, {corpus.unknown / max(corpus.tokens, 1):.1%} of the text is <UNK> | "
            f"{progress.total_steps:,} steps of {optimizer.batch_size} x {optimizer.unroll_steps} words, "
            f"{self.stream.steps_per_epoch:,} per epoch{done}"
        )

    def digest(self) -> str:
        """Return a digest of all that a step reads and changes: weights, and the optimizer's numbers."""
        sums = (each for state in self.optimizer.state.values() for each in state.values() if torch.is_tensor(each))
        digest = hashlib.sha256()
        for tensor in (*self.model.state_dict().values(), *sums):
            values = tensor.detach().cpu().contiguous()
            digest.update(bytes_of(values))
        return digest.hexdigest()[:12]

    def step(self) -> StepResult:
        """Read the next batch and update the weights once.

        Where the loss or the gradient is no longer finite, the optimizer leaves the weights as they were, and the next
        report or save raises: reading a number of a GPU waits for it.
        """
        number, waited = self.progress.step, self.stream.waited
        batch = self.stream.batch(*divmod(number, self.stream.steps_per_epoch))
        for group in self.optimizer.param_groups:
            group["lr"] = rate_of_step(self.config.optimizer, self.progress.total_steps, number)
        result = self.update(batch, self.state, number)
        self.state = result.state
        self.progress.add(result, batch.words, self.stream.waited - waited)
        return result

    def check_unreported(self) -> None:
        """Raise ElmoFastError unless losses and gradient's norm of all steps since the last report are finite."""
        numbers = self.progress.unreported
        for step, (forward, backward, norm) in enumerate(numbers, self.progress.step - len(numbers) + 1):
            if all(map(math.isfinite, (forward, backward, norm))):
                continue
            skipped = getattr(self.optimizer, "skipped", None)
            left_out = "" if skipped is None else f"{int(skipped)} updates were left out; "
            epoch, number = divmod(step - 1, self.stream.steps_per_epoch)
            raise ElmoFastError(
                f"step {step} (batch {number + 1} of epoch {epoch + 1}): the loss ({forward:g} forward, {backward:g} "
                f"backward) or the gradient's norm ({norm:g}) is no longer finite; {left_out}{self._advice()}"
            )

    def _advice(self) -> str:
        folder = self.record.folder
        earlier = f"earlier checkpoints are in {folder / CHECKPOINTS}; " if saved_steps(folder) else ""
        return f"{earlier}try a smaller learning_rate"

    def save(self, *, best: bool = False, goes_on: bool = False) -> bool:
        """Write the checkpoint of this step, on the process that leads; return whether it is on the disk.

        best: as the best one, not as one of the newest; goes_on: a disk that refuses it is a warning, since a disk that
        is full now may not be at the next interval; else an OSError.

        Raises ElmoFastError, in all processes, rather than save NaN or infinity, which a resumed run would read.
        """
        began, progress = time.monotonic(), self.progress
        self.check_unreported()
        lost = self.state is not None and not all(each.isfinite().all() for each in self.state)
        if self.processes.max_(int(lost)):
            raise ElmoFastError(
                f"after step {progress.step} the LSTM's state is no longer finite; it was not saved; {self._advice()}"
            )
        rows = [self.processes.gather(each, dim=2) for each in self.state or ()]
        at = RunPosition(
            step=progress.step,
            words=progress.words,
            seconds=progress.seconds,
            unreported=progress.unreported,
            best=self.best,
            **identity(self.config, self.corpus),
        )
        run, keep = self.record.folder, self.config.run.keep_checkpoints
        try:
            path = self.processes.run_on_leader(
                lambda: save_checkpoint(run, keep, self.model, self.optimizer, rows, at, best=best)
            )
        except (ElmoFastError, OSError) as error:
            if not goes_on:
                raise
            stays = ", and checkpoints/best stays as it was" if best else ""
            warnings.warn(f"not saved after step {at.step}: {error}; training continues{stays}", stacklevel=2)
            return False
        took = round(time.monotonic() - began, 3)  # seconds that training waited for it
        self.record.write(event="checkpoint", step=at.step, seconds=round(at.seconds, 3), path=str(path), took=took)
        self.record.say(f"saved  {path} after step {at.step} ({took:.1f} s)")
        return True

    def evaluation_is_due(self) -> bool:
        """Return true after the steps or the seconds between evaluations; all processes agree.

        A long evaluation puts off the next one, so that most of the time is left to training.
        """
        by_steps = self.progress.step % self.evaluation_steps == 0
        if by_steps or self.evaluation_seconds is None:
            return by_steps
        trained = self.progress.seconds - self.best.seconds
        due = trained >= max(self.evaluation_seconds, TRAINED_PER_EVALUATED * self.best.took)
        return bool(self.processes.max_(int(due)))

    def evaluate(self, *, planned: bool = True, final: bool = False) -> None:
        """Report the perplexity of the held-out text, as `elmo-fast eval` does, and keep the best checkpoint.

        planned: count towards `patience`; the evaluation of a run that its time limit ends, and that may resume, does
        not. final: no step follows, so that a best checkpoint that cannot be saved is an error, not a line.

        A perplexity is the best one only when its checkpoint is on the disk, and only then the log has it.
        """
        if self.heldout is None:
            return
        began = self.progress.seconds
        _graphs.release(self.device)  # a step's graph holds its memory
        self.perplexity = evaluate(
            self.model, self.heldout, processes=self.processes, progress=self._evaluation_lines()
        )
        mean = self.perplexity.mean
        before, text, now = self.best, self.heldout.fingerprint, self.progress.seconds
        this: dict[str, Any] = {"last": self.progress.step, "seconds": now, "took": now - began}
        if before.perplexity is not None and not mean < before.perplexity:  # NaN is not better
            self.best = dataclasses.replace(before, worse=before.worse + planned, **this)
        else:
            self.best = BestEvaluation(mean, self.progress.step, text=text, **this)
            # The position that is saved holds the new best evaluation.
            if self.config.run.keep_best and not self.save(best=True, goes_on=not final):
                self.best = dataclasses.replace(before, worse=0, text=text, **this)
        self.record.write(
            event="heldout",
            step=self.progress.step,
            words=self.progress.words,  # trained on so far
            perplexity=mean,
            perplexity_forward=self.perplexity.forward,
            perplexity_backward=self.perplexity.backward,
        )
        self.record.say(f"eval   step {self.progress.step} | held-out perplexity {self.perplexity}")
        if self.processes.leads:
            for line in gap_lines(self.model, self.heldout):
                self.record.say(line)

    def _evaluation_lines(self) -> Callable[[int], None]:
        """Return what counts the words of an evaluation's steps in this process, and reports them at times."""
        done, said, step = 0, time.monotonic(), self.progress.step

        def add(words: int) -> None:
            nonlocal done, said
            done += words
            if (now := time.monotonic()) - said > LONGEST_SILENCE:
                said = now
                self.record.say(f"eval   step {step} | {done:,} words of the held-out text are read")

        return add

    def report(self, *, row: bool = True, line: bool = True, partial: bool = False) -> None:
        """Report the steps since the last row, if there were any: as a row of metrics.jsonl, and as a line for people.

        A row that no line has shown is shown by the next one. partial: of a run that stops between two reports, and
        may resume: the checkpoint still counts these steps as unreported, so that the resumed run replaces the row by
        that of an undisturbed run.
        """
        if self.progress.unreported:
            self.check_unreported()
            numbers = self.progress.report(partial=partial or not row)
            last = max(self.progress.step - 1, 0)
            numbers["learning_rate"] = rate_of_step(self.config.optimizer, self.progress.total_steps, last)
            # The most a GPU has held, or the memory of this process; None where it is not known.
            on_gpu = self.device.type == "cuda"
            numbers["memory_bytes"] = torch.cuda.max_memory_allocated(self.device) if on_gpu else resident()
            self._line = self.progress.line(numbers)
            if row:
                self.record.write(**numbers)
        if line and self._line:
            self.record.say(self._line)
            self._line, self._said = "", time.monotonic()

    def train(self) -> tuple[str, int]:
        """Run to the last step, the end of the time, or Ctrl-C; save at intervals and, in every case, at the end.

        Returns why it stopped ("steps", "patience", "time" or "interrupt"), and the number of the signal that
        interrupted any of the processes, or 0.
        """
        run, progress = self.config.run, self.progress
        progress.start()
        self._said, saved, saved_at = time.monotonic(), progress.step, progress.seconds
        with StopRequest() as request:
            while not (stop := self.reason_to_stop(request)):
                self.step()
                row, line = progress.step % run.log_interval == 0, time.monotonic() - self._said > LONGEST_SILENCE
                if row or line:
                    self.report(row=row, line=line)
                if progress.step >= progress.total_steps:
                    continue
                began = time.monotonic()
                if self.evaluation_is_due():
                    self.evaluate()
                due = progress.step % run.checkpoint_interval == 0
                if row and not due:  # by the clock too, but not at each step: several processes have to agree
                    due = bool(self.processes.max_(int(progress.seconds - saved_at > LONGEST_UNSAVED)))
                if due:
                    saved, saved_at = progress.step if self.save(goes_on=True) else saved, progress.seconds
                progress.reported += time.monotonic() - began
            self.report(partial=stop in ("interrupt", "time"))
            if saved != progress.step:
                self.save()  # the evaluation may take long
            # Evaluated are the text and step whose evaluation, with all that follows from it, is done.
            evaluated, heldout = (self.best.text, self.best.last), self.heldout
            if heldout is not None and stop != "interrupt" and evaluated != (heldout.fingerprint, progress.step):
                self.evaluate(planned=stop == "steps", final=True)
                self.save()  # again, with this evaluation
            # A kill after the last save left one too many if the resumed run has nothing to save.
            self.processes.run_on_leader(lambda: remove_older(self.record.folder, run.keep_checkpoints, progress.step))
        return stop, request.signal if stop == "interrupt" else 0

    def reason_to_stop(self, request: StopRequest) -> str:
        """Return "steps", "patience", "interrupt" or "time", alike in all processes; "" to go on."""
        progress, patience = self.progress, self.config.run.patience
        if progress.step >= progress.total_steps:
            return "steps"
        if patience is not None and self.best.worse >= patience:
            return "patience"
        over = progress.max_seconds is not None and progress.session_seconds >= progress.max_seconds
        reason = self.processes.max_(request.signal or _TIME_IS_UP * over)
        if reason > _TIME_IS_UP:
            request.signal = reason
            self.record.say(f"interrupted after step {progress.step}: saving")
            return "interrupt"
        return "time" if reason else ""
