"""The state of a pretraining run: one step, one save, one evaluation at a time (loop.py calls them)."""

import math
import pathlib
import time
from dataclasses import asdict

import torch

from elmo_fast.checkpoints import CHECKPOINTS
from elmo_fast.corpus import Corpus, Stream
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.elmo_lstm import LayerStates
from elmo_fast.ops import _graphs
from elmo_fast.pretrain.checkpoint import (
    RunPosition,
    TrainingState,
    load_optimizer,
    save_checkpoint,
    write_training_state,
)
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.evaluate import Perplexity, evaluate
from elmo_fast.pretrain.language_model import LanguageModel, make_input_reader
from elmo_fast.pretrain.log import RunLog, TrainingProgress
from elmo_fast.pretrain.plan import (
    describe_corpus,
    describe_steps,
    planned_steps,
)
from elmo_fast.pretrain.processes import Processes
from elmo_fast.pretrain.step.optimizer import learning_rate_factor, make_optimizer, make_scheduler
from elmo_fast.pretrain.step.step_inputs import Words
from elmo_fast.pretrain.step.training_step import Step, StepResult


class TrainingLost(ElmoFastError):
    """Numbers are no longer finite: resume from the last checkpoint."""


class LanguageModelTrainer:
    """Trains a model on a corpus and saves as it goes; alone, or as one of several processes that share the rows.

    Everything that changes during a run is an attribute (model, optimizer, state, progress).

    config: of the run; model: trained in place, alike in all processes; corpus: encoded with the model's vocabulary;
    record: its log; resumed: the state to resume from; heldout: text to evaluate at intervals;
    device: where the model is; processes: the processes that train together.

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
        device: torch.device | str = "cpu",
        processes: Processes | None = None,
    ) -> None:
        optimizer, run = config.optimizer, config.run
        self.config, self.model, self.corpus, self.record, self.heldout = config, model, corpus, record, heldout
        self.device, self.processes = torch.device(device), processes or Processes()
        # Reading a number on a GPU forces a sync: it is done once per report.
        self.looks_at_every_step = self.device.type == "cpu"
        self.vocabulary = corpus.vocabulary.digest
        self.first_row, self.row_count = self.processes.assign_rows(optimizer.batch_size, optimizer.micro_batches)
        self.stream = Stream(
            corpus,
            optimizer.batch_size,
            optimizer.unroll_steps,
            seed=run.seed if config.data.shuffle else None,
            first_row=self.first_row,
            row_count=self.row_count,
            ahead=self.device.type != "cpu",
            distinct_parts=self._distinct_parts(),
        )
        self.characters = make_input_reader(model.options, corpus, self.device)
        total = planned_steps(config, self.stream.steps_per_epoch)
        self.optimizer = make_optimizer(optimizer, model)
        self.progress = TrainingProgress(total, run.max_seconds, model.loss.perplexity)
        self.state: LayerStates | None = None
        self.perplexity: Perplexity | None = None
        if resumed is not None:
            self._resume(resumed)
        self.scheduler = make_scheduler(optimizer, self.optimizer, total, self.progress.step)
        # Of the last step, which may be one of an earlier process that it did not report.
        self.rate = optimizer.rate * learning_rate_factor(optimizer, total)(max(self.progress.step - 1, 0))
        self.update = Step(
            model,
            self.optimizer,
            clip_norm=optimizer.all_clip_norm_val,
            seed=run.seed,
            state_reset=optimizer.state_reset,
            micro_batches=optimizer.micro_batches,
            sparse=optimizer.optimiser == "adagrad",
            processes=self.processes,
            cuda_graph=run.cuda_graph,
        )

    def _distinct_parts(self) -> int:
        """Parts of the rows whose distinct words the stream names: on a GPU, where the device alone would know them."""
        if self.device.type == "cpu" or self.model.options.char_cnn is None:
            return 0
        return self.config.optimizer.micro_batches

    def _resume(self, resumed: TrainingState) -> None:
        self.model.load(resumed.weights)
        load_optimizer(self.model, self.optimizer, resumed.optimizer)
        if resumed.state is not None:
            rows = slice(self.first_row, self.first_row + self.row_count)
            h, c = (each[:, :, rows].contiguous().to(self.device) for each in resumed.state)
            self.state = h, c
        self.progress.resume(resumed.position)

    def describe(self) -> list[str]:
        """The lines that open a run: the text, the plan."""
        progress = self.progress
        return [
            *describe_corpus(self.corpus),
            *(() if self.heldout is None else describe_corpus(self.heldout, "eval  ")),
            describe_steps(self.config, progress.total_steps, self.stream.steps_per_epoch, progress.step),
        ]

    @property
    def position(self) -> RunPosition:
        """The position of the run, and what identifies the run."""
        optimizer, progress = self.config.optimizer, self.progress
        return RunPosition(
            step=progress.step,
            words=progress.words,
            seconds=progress.seconds,
            fingerprint=self.corpus.fingerprint,
            rows=optimizer.batch_size,
            unroll_steps=optimizer.unroll_steps,
            seed=self.config.run.seed,
            shuffle=self.config.data.shuffle,
            optimiser=optimizer.optimiser,
            model=asdict(self.config.model),
            vocabulary=self.vocabulary,
            unreported=progress.unreported,
            loss=optimizer.loss,
        )

    def words(self, number: int) -> Words:
        """What this process reads in step `number` of the run."""
        batch = self.stream.batch(*divmod(number, self.stream.steps_per_epoch))
        return Words(
            types=batch.types,
            targets=batch.targets,
            filled=batch.filled,
            words=batch.words,
            first_row=self.first_row,
            rows=self.config.optimizer.batch_size,
            characters=self.characters,
            distinct=batch.distinct,
        )

    def step(self) -> StepResult:
        """Reads the next batch and updates the weights once.

        Raises ElmoFastError when the loss or the gradient is no longer a finite number; on a GPU the next report does,
        and the optimizer has left the weights as they were.
        """
        number, waited = self.progress.step, self.stream.waited
        words = self.words(number)
        result = self.update(words, self.state, number)
        self.rate = self.optimizer.param_groups[0]["lr"]
        if self.looks_at_every_step:
            self.check_finite(f"step {number + 1}", *map(float, result[:3]))
        self.scheduler.step()
        self.state = result.state
        self.progress.add(result, words.words, self.stream.waited - waited)
        return result

    def check_finite(self, when: str, forward: float, backward: float, norm: float) -> None:
        if not all(map(math.isfinite, (forward, backward, norm))):
            skipped = getattr(self.optimizer, "skipped", None)
            left_out = "" if skipped is None else f"{int(skipped)} updates were left out; "
            epoch, number = divmod(self.progress.step, self.stream.steps_per_epoch)
            raise TrainingLost(
                f"{when} (batch {number + 1} of epoch {epoch + 1}): the loss ({forward:g} forward, {backward:g} "
                f"backward) or the gradient's norm ({norm:g}) is no longer finite; {left_out}earlier checkpoints are "
                f"in {self.record.folder / CHECKPOINTS}; try a smaller learning_rate"
            )

    def save(self) -> pathlib.Path | None:
        """Writes the checkpoint of this step, on the process that leads; raises OSError if the disk refuses it."""
        began, at = time.monotonic(), self.position
        self._check_worth_saving(at)
        rows = None if self.state is None else [self.processes.gather(each, dim=2) for each in self.state]
        state = None if rows is None or rows[0] is None or rows[1] is None else (rows[0], rows[1])

        def write() -> pathlib.Path:
            return save_checkpoint(
                self.record.folder,
                at.step,
                self.config.run.keep_checkpoints,
                lambda folder: write_training_state(folder, self.model, self.optimizer, state, at),
            )

        path = self.processes.run_on_leader(write)
        self.record.saved(path, at.step, round(at.seconds, 3), time.monotonic() - began)
        return path

    def _check_worth_saving(self, at: RunPosition) -> None:
        """Raises ElmoFastError, in all processes, rather than save NaN or infinity, which a resumed run would read."""
        for forward, backward, norm in at.unreported:
            self.check_finite(f"up to step {at.step}", forward, backward, norm)
        lost = self.state is not None and not all(each.isfinite().all() for each in self.state)
        if self.processes.max_(int(lost)):
            raise TrainingLost(
                f"after step {at.step} the LSTM's state is no longer finite; it was not saved; earlier checkpoints are "
                f"in {self.record.folder / CHECKPOINTS}; try a smaller learning_rate"
            )

    def evaluate(self) -> None:
        """Reports the perplexity of the held-out text, as `elmo-fast eval` does."""
        if self.heldout is not None:
            _graphs.release(self.device)  # a step's graph holds its memory
            self.perplexity = evaluate(self.model, self.heldout, device=self.device, processes=self.processes)
            self.record.heldout(self.perplexity, self.progress.step, self.progress.words)
