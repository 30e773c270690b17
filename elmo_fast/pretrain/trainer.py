"""A pretraining run as it stands: one step, one save, one evaluation at a time (loop.py has their order)."""

import math
import pathlib
import time
from dataclasses import asdict
from typing import cast

import torch

from elmo_fast.checkpoints import CHECKPOINTS
from elmo_fast.corpus import Corpus, Stream
from elmo_fast.corpus.streams import Placement
from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.checkpoint import save_step
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.data.inputs import spelling
from elmo_fast.pretrain.evaluate import Perplexity, evaluate
from elmo_fast.pretrain.language_model import LanguageModel, State
from elmo_fast.pretrain.log.progress import Progress
from elmo_fast.pretrain.log.run_log import Record
from elmo_fast.pretrain.processes import Peers
from elmo_fast.pretrain.start.plan import check_possible, corpus_lines, lines, planned_steps, steps_line
from elmo_fast.pretrain.step.optimiser import course, new_optimiser, new_scheduler
from elmo_fast.pretrain.step.training_step import Step, StepResult, Words
from elmo_fast.pretrain.training_state import Position, Snapshot, load_optimiser, write_snapshot


class TrainingLost(ElmoFastError):
    """Numbers are no longer finite: there is nothing to go on with but the last checkpoint."""


class Trainer:
    """Trains a model on a corpus and saves as it goes; alone, or as one of several processes that share the rows.

    Everything that changes during a run is an attribute (model, optimiser, state, progress).

    config: of the run; model: trained in place, alike in all processes; corpus: encoded with the model's vocabulary;
    record: where it says how it goes; snapshot: to go on from; heldout: to be evaluated on at intervals;
    device: where the model is; peers: the processes that train together.

    Raises ElmoFastError when the vocabulary has fewer words than are to be drawn, or the rows cannot be shared out.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: LanguageModel,
        corpus: Corpus,
        record: Record,
        *,
        snapshot: Snapshot | None = None,
        heldout: Corpus | None = None,
        device: torch.device | str = "cpu",
        peers: Peers | None = None,
    ) -> None:
        optimiser, run = config.optimiser, config.run
        check_possible(config, corpus)
        self.config, self.model, self.corpus, self.record, self.heldout = config, model, corpus, record, heldout
        self.device, self.peers = torch.device(device), peers or Peers()
        # On a GPU to look at a number is to wait for the device: it is done once per report.
        self.looks_at_every_step = self.device.type == "cpu"
        self.vocabulary = corpus.vocabulary.digest
        self.first_row, self.row_count = self.peers.share(optimiser.batch_size, optimiser.micro_batches)
        self.stream = Stream(
            corpus,
            optimiser.batch_size,
            optimiser.unroll_steps,
            seed=run.seed if config.data.shuffle else None,
            first_row=self.first_row,
            row_count=self.row_count,
            device=self.device,
            placement=cast(Placement, config.data.placement),
        )
        self.characters = spelling(model.options, corpus, self.device)
        total = planned_steps(config, self.stream.steps_per_epoch)
        self.optimiser = new_optimiser(optimiser, model)
        self.progress = Progress(total, run.max_seconds, perplexity_name=model.loss.perplexity)
        self.state: State | None = None
        self.perplexity: Perplexity | None = None
        if snapshot is not None:
            self._go_on(snapshot)
        self.scheduler = new_scheduler(optimiser, self.optimiser, total, self.progress.step)
        # Of the last step, which an earlier sitting may have taken and not reported.
        self.rate = optimiser.rate * course(optimiser, total)(max(self.progress.step - 1, 0))
        self.update = Step(
            model,
            self.optimiser,
            clip_norm=optimiser.all_clip_norm_val,
            seed=run.seed,
            state_reset=optimiser.state_reset,
            micro_batches=optimiser.micro_batches,
            sparse=optimiser.optimiser == "adagrad",
            peers=self.peers,
        )

    def _go_on(self, snapshot: Snapshot) -> None:
        at = snapshot.position
        self.model.load(snapshot.weights)
        load_optimiser(self.model, self.optimiser, snapshot.optimiser)
        if snapshot.state is not None:
            rows = slice(self.first_row, self.first_row + self.row_count)
            h, c = (each[:, :, rows].contiguous().to(self.device) for each in snapshot.state)
            self.state = h, c
        self.progress = Progress(
            self.progress.total_steps,
            self.config.run.max_seconds,
            perplexity_name=self.model.loss.perplexity,
            step=at.step,
            words=at.words,
            seconds=at.seconds,
            unreported=at.unreported,
        )

    def describe(self) -> list[str]:
        """The lines that open a run: the model, the text, the plan."""
        progress = self.progress
        return [
            *lines(self.config, len(self.corpus.vocabulary), self.peers, self.device),
            *corpus_lines(self.corpus),
            *(() if self.heldout is None else corpus_lines(self.heldout, "eval  ")),
            steps_line(self.config, progress.total_steps, self.stream.steps_per_epoch, progress.step),
        ]

    @property
    def position(self) -> Position:
        """Where the run stands, and of which run it is."""
        optimiser, progress = self.config.optimiser, self.progress
        return Position(
            step=progress.step,
            words=progress.words,
            seconds=progress.seconds,
            fingerprint=self.corpus.fingerprint,
            rows=optimiser.batch_size,
            unroll_steps=optimiser.unroll_steps,
            seed=self.config.run.seed,
            shuffle=self.config.data.shuffle,
            optimiser=optimiser.optimiser,
            model=asdict(self.config.model),
            vocabulary=self.vocabulary,
            unreported=progress.unreported,
            loss=optimiser.loss,
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
            rows=self.config.optimiser.batch_size,
            characters=self.characters,
        )

    def step(self) -> StepResult:
        """Reads the next batch and updates the weights once.

        Raises ElmoFastError when the loss or the gradient is no longer a finite number; on a GPU the next report does,
        and the optimiser has left the weights as they were.
        """
        number, waited = self.progress.step, self.stream.waited
        words = self.words(number)
        result = self.update(words, self.state, number)
        self.rate = self.optimiser.param_groups[0]["lr"]
        if self.looks_at_every_step:
            self.check_finite(f"step {number + 1}", *map(float, result[:3]))
        self.scheduler.step()
        self.state = result.state
        self.progress.add(result, words.words, self.stream.waited - waited)
        return result

    def check_finite(self, when: str, forward: float, backward: float, norm: float) -> None:
        if not all(map(math.isfinite, (forward, backward, norm))):
            skipped = getattr(self.optimiser, "skipped", None)
            left_out = "" if skipped is None else f"{int(skipped)} updates were left out; "
            epoch, number = divmod(self.progress.step, self.stream.steps_per_epoch)
            raise TrainingLost(
                f"{when} (batch {number + 1} of epoch {epoch + 1}): the loss ({forward:g} forward, {backward:g} "
                f"backward) or the gradient's norm ({norm:g}) is no longer finite; {left_out}earlier checkpoints are "
                f"in {self.record.folder / CHECKPOINTS}; try a smaller learning_rate"
            )

    def save(self) -> pathlib.Path | None:
        """Writes the checkpoint of this step, by the process that leads; raises what the disk complains of."""
        began, at = time.monotonic(), self.position
        self._check_worth_saving(at)
        rows = None if self.state is None else [self.peers.gathered(each, dim=2) for each in self.state]
        state = None if rows is None or rows[0] is None or rows[1] is None else (rows[0], rows[1])

        def write() -> pathlib.Path:
            return save_step(
                self.record.folder,
                at.step,
                self.config.run.keep_checkpoints,
                lambda folder: write_snapshot(folder, self.model, self.optimiser, state, at),
            )

        path = self.peers.led(write)
        self.record.saved(path, at.step, round(at.seconds, 3), time.monotonic() - began)
        return path

    def _check_worth_saving(self, at: Position) -> None:
        """Raises ElmoFastError, in all processes, rather than save what is no number and would be gone on with."""
        for forward, backward, norm in at.unreported:
            self.check_finite(f"up to step {at.step}", forward, backward, norm)
        lost = self.state is not None and not all(each.isfinite().all() for each in self.state)
        if self.peers.largest(int(lost)):
            raise TrainingLost(f"after step {at.step} the LSTM's state is no longer finite; nothing was saved")

    def evaluate(self) -> None:
        """Tells the perplexity of the held-out text, as `elmo-fast eval` does."""
        if self.heldout is not None:
            self.perplexity = evaluate(self.model, self.heldout, device=self.device, peers=self.peers)
            self.record.heldout(self.perplexity, self.progress.step, self.progress.words)
