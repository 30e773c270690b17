"""The loop of a pretraining run, in one process."""

import math
import pathlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain.adagrad import AdaGrad
from elmo_fast.pretrain.checkpoint import CHECKPOINTS, save_model, save_step
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.corpus import Corpus
from elmo_fast.pretrain.interrupts import StopRequest
from elmo_fast.pretrain.language_model import LanguageModel, State
from elmo_fast.pretrain.progress import MetricsFile, Progress
from elmo_fast.pretrain.step import StepResult, train_step
from elmo_fast.pretrain.streams import Batch, training_batches
from elmo_fast.pretrain.tensors import Encoder

# A line at least this often, however slow the steps are.
LONGEST_SILENCE = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended. steps taken; seconds of training; stopped_by: "steps", "time" or "interrupt"."""

    steps: int
    seconds: float
    stopped_by: str


def planned_steps(config: PretrainConfig, corpus: Corpus) -> int:
    """Steps of a run that no clock stops: n_epochs passes of B·T words each, or max_steps when that is less.

    A pass is n_train_tokens words, as in bilm-tf, or, when that is not given, every word and sentence end of the text.
    """
    words = config.optimiser.n_train_tokens or corpus.tokens + corpus.sentences
    per_step = config.optimiser.batch_size * config.optimiser.unroll_steps
    steps = max(1, config.optimiser.n_epochs * (words // per_step))
    return steps if config.run.max_steps is None else min(steps, config.run.max_steps)


class Trainer:
    """Trains a model on a corpus: bilm-tf's streams, carried state, sampled softmax, clip, AdaGrad; saves as it goes.

    Everything that changes during a run is an attribute (model, optimiser, batches, state, progress.step).

    config: of the run; model: trained in place; corpus: encoded with the model's vocabulary; folder: where checkpoints
    and metrics.jsonl go; report: takes each line for people; device: where the model is.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: LanguageModel,
        corpus: Corpus,
        folder: pathlib.Path,
        *,
        report: Callable[[str], None] = print,
        device: torch.device | str = "cpu",
    ) -> None:
        optimiser = config.optimiser
        if optimiser.n_negative_samples_batch > corpus.vocabulary_size:
            raise ElmoFastError(
                f"n_negative_samples_batch must not exceed the {corpus.vocabulary_size:,} words of the vocabulary, as "
                f"samples are distinct; got {optimiser.n_negative_samples_batch:,}"
            )
        self.config, self.model, self.folder, self.report = config, model, folder, report
        # On a GPU to look at a number is to wait for the device: it is done once per report.
        self.looks_at_every_step = torch.device(device).type == "cpu"
        self.encoder = Encoder(corpus, config.model.max_characters_per_token, device)
        self.optimiser = AdaGrad(model.parameters(), optimiser.learning_rate, optimiser.initial_accumulator_value)
        self.batches: Iterator[Batch] = training_batches(
            corpus, optimiser.batch_size, optimiser.unroll_steps, seed=config.run.seed, shuffle=config.data.shuffle
        )
        self.state: State | None = None
        self.progress = Progress(
            planned_steps(config, corpus), config.run.max_seconds, optimiser.batch_size * optimiser.unroll_steps
        )

    def step(self) -> StepResult:
        """Reads the next batch and updates the weights once.

        Raises ElmoFastError when the loss or the gradient is no longer a finite number; on a GPU the next report does,
        and the optimiser has left the weights as they were.
        """
        optimiser = self.config.optimiser
        result = train_step(
            self.model,
            self.optimiser,
            self.encoder.batch(next(self.batches)),
            self.state,
            num_samples=optimiser.n_negative_samples_batch,
            clip_norm=optimiser.all_clip_norm_val,
            seed=self.config.run.seed,
            step=self.progress.step,
        )
        if self.looks_at_every_step:
            self._check_finite(f"step {self.progress.step + 1}", *map(float, result[:3]))
        self.state = result.state
        self.progress.add(result)
        return result

    def _check_finite(self, when: str, forward: float, backward: float, norm: float) -> None:
        if not all(map(math.isfinite, (forward, backward, norm))):
            skipped = self.optimiser.skipped
            left_out = "" if skipped is None else f"{int(skipped)} updates were left out; "
            raise ElmoFastError(
                f"{when}: the loss ({forward:g} forward, {backward:g} backward) "
                f"or the gradient's norm ({norm:g}) is no longer finite; {left_out}earlier checkpoints are in "
                f"{self.folder / CHECKPOINTS}; try a smaller learning_rate"
            )

    def save(self, final: bool = False) -> None:
        """Writes the weights as they are: to checkpoints/step-N and, at the end, to the run's folder itself."""
        began, step = time.monotonic(), self.progress.step
        if final:
            path = self.folder
            save_model(path, self.model, step)
        else:
            path = save_step(self.folder / CHECKPOINTS, self.model, step, self.config.run.keep_checkpoints)
        self.metrics.write(event="checkpoint", step=step, seconds=round(self.progress.seconds, 3), path=str(path))
        self.report(f"saved {path} after step {step} ({time.monotonic() - began:.1f} s)")

    def train(self) -> Outcome:
        """Runs to the last step, the end of the time, or Ctrl-C; saves at intervals and, in every case, at the end."""
        run, progress = self.config.run, self.progress
        progress.start()
        with MetricsFile(self.folder / "metrics.jsonl") as self.metrics, StopRequest() as request:
            while (stop := self._reason_to_stop(request)) is None:
                self.step()
                if progress.step % run.log_interval == 0 or progress.since_report > LONGEST_SILENCE:
                    self._log()
                if progress.step % run.checkpoint_interval == 0 and progress.step < progress.total_steps:
                    self.save()
            self._log()
            self.save(final=True)
        return Outcome(progress.step, progress.seconds, stop)

    def _reason_to_stop(self, request: StopRequest) -> str | None:
        if request.signal is not None:
            self.report(f"interrupted after step {self.progress.step}: saving")
            return "interrupt"
        if self.progress.step >= self.progress.total_steps:
            return "steps"
        if self.progress.max_seconds is not None and self.progress.seconds >= self.progress.max_seconds:
            return "time"
        return None

    def _log(self) -> None:
        if self.progress.has_news:
            row = self.progress.report()
            means = row["loss_forward"], row["loss_backward"], row["gradient_norm"]
            self._check_finite(f"up to step {self.progress.step}", *means)
            self.metrics.write(**row)
            self.report(self.progress.line(row))
