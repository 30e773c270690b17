"""Pretraining as the cases time it: a trainer that says nothing, and what a step reads, made of given words."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import milliseconds
from elmo_fast import batch_to_ids
from elmo_fast.corpus import Corpus
from elmo_fast.pretrain import loop
from elmo_fast.pretrain.config import PretrainConfig
from elmo_fast.pretrain.log.run_log import RunLog
from elmo_fast.pretrain.start.start_run import make_language_model
from elmo_fast.pretrain.step.step_inputs import Words
from elmo_fast.pretrain.trainer import LanguageModelTrainer


def silent_trainer(config: PretrainConfig, corpus: Corpus, **more: Any) -> LanguageModelTrainer:
    """A trainer of a new model that reports to nobody; more: arguments of `make_language_model`."""
    model = make_language_model(config, len(corpus.vocabulary), **more)
    return LanguageModelTrainer(config, model, corpus, RunLog(pathlib.Path(), silent=True))


def step_of(trainer: LanguageModelTrainer, *, report_every: int) -> Callable[[], float]:
    """A measurement of the next step in milliseconds, reading included, and reporting where it is due."""

    def step() -> None:
        trainer.step()
        if trainer.progress.step % report_every == 0:
            loop.report_steps(trainer)

    return milliseconds(step)


def reading(
    forward: Sequence[str], backward: Sequence[str], targets: Mapping[str, int], rows: int, device: str = "cpu"
) -> Words:
    """Both directions' words of one step, `rows` rows of them end to end; each predicts the word it has read.

    targets: the id to predict of each word.
    """
    streams = (forward, backward)
    numbers = {word: i for i, word in enumerate(dict.fromkeys([*forward, *backward]))}
    spelled = batch_to_ids([list(numbers)])[0].to(device)

    def windows(of: Mapping[str, int]) -> Tensor:
        return torch.tensor([[of[word] for word in stream] for stream in streams], device=device).view(2, rows, -1)

    types = windows(numbers)
    steps = types.shape[2]
    filled = np.full(rows, steps, np.int64)
    return Words(types, windows(targets), filled, rows * steps, 0, rows, lambda chosen: spelled[chosen])
