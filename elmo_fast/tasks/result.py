"""What the training of a task leaves behind."""

import dataclasses
from typing import Any

from elmo_fast.tasks.config import TaskConfig
from elmo_fast.tasks.scores import Scores


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """The result of training.

    dev, test: scores of the kept epoch; test is None without a test_path
    epochs: a row per epoch (see TaskTrainer)
    best_epoch: the kept epoch, from 1
    mix_weights: place ("input", "output") -> the softmax of the mix's weights, one number per layer of the biLM, lowest
        first; empty without ELMo
    gammas: place -> the mix's γ
    config: the configuration
    seconds: of all epochs
    words, sentences: of the training sentences that were used
    parameters: number of trained parameters
    notes: what a reader of the scores must know, such as labels that did not occur in training
    """

    dev: Scores
    test: Scores | None
    epochs: list[dict[str, Any]]
    best_epoch: int
    mix_weights: dict[str, list[float]]
    gammas: dict[str, float]
    config: TaskConfig
    seconds: float
    words: int
    sentences: int
    parameters: int
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        test = None if self.test is None else self.test.as_dict()
        return plain | {"dev": self.dev.as_dict(), "test": test, "config": self.config.flat()}
