"""What a large vocabulary costs: one step of the preset "small" with 10,000 words and with 800,000, and what of a step
is spent outside the model's kernels.

Only the rows of the softmax table that a step uses are touched, so that a step should not cost more with more words.
The kernels: characters to hidden states, the sampled softmax, their backward passes, the clip and the update.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from benchmarks.cases import Settings
from benchmarks.results import Report, faster, row, significant
from benchmarks.timing import in_turn
from elmo_fast.corpus import Corpus, encode
from elmo_fast.pretrain import loop
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.start.start_run import make_language_model
from elmo_fast.pretrain.step import training_step as step_module
from elmo_fast.pretrain.trainer import LanguageModelTrainer
from elmo_fast.text import MARKERS, Vocabulary

SIZES = (10_000, 800_000)
GOAL = 1 / 1.15


def corpus_of(words: int, sentences: int) -> Corpus:
    """Random text in a vocabulary of so many words: always the same text, of the words that all vocabularies have."""
    names = [*MARKERS, *(f"w{i}" for i in range(words - len(MARKERS)))]
    chosen = np.random.default_rng(0).random((sentences, 25))
    # As frequent as the sampler has them.
    ids = np.minimum((SIZES[0] + 1.0) ** chosen - 1, min(words, SIZES[0]) - 1).astype(int)
    return encode(([names[max(i, 3)] for i in line] for line in ids), Vocabulary(names))


class Silent:
    """A record that nobody reads."""

    def say(self, line: str) -> None:
        """Says nothing."""

    def step(self, row: dict[str, Any], line: str) -> None:
        """Writes nothing."""


class Side:
    """A trainer over so many words, and how long its steps take."""

    def __init__(self, words: int, quick: bool) -> None:
        config = PretrainConfig.from_flat(load_preset("small").flat() | ({"batch_size": 2} if quick else {}))
        config.optimizer.n_negative_samples_batch = 64 if quick else config.optimizer.n_negative_samples_batch
        corpus = corpus_of(words, 500 if quick else 20_000)
        self.trainer = LanguageModelTrainer(config, make_language_model(config, words), corpus, Silent())  # type: ignore[arg-type]
        self.inside = 0.0
        self.shares: list[float] = []

    def milliseconds(self) -> float:
        """The time of the next step, reading and reporting included."""
        self.inside, start = 0.0, time.perf_counter()
        with timed(self, "_losses"), timed(self, "clip_and_step"), timed(self, "backward"):
            self.trainer.step()
        if self.trainer.progress.step % 5 == 0:
            loop.report_steps(self.trainer)
        taken = time.perf_counter() - start
        self.shares.append(1 - self.inside / taken)
        return 1000 * taken


@contextmanager
def timed(side: Side, name: str) -> Iterator[None]:
    """Adds to `side.inside` the time of a kernel's calls."""
    home: Any = {"_losses": step_module.Step, "clip_and_step": step_module, "backward": torch.Tensor}[name]
    original: Callable[..., Any] = getattr(home, name)

    def call(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*arguments, **named)
        finally:
            side.inside += time.perf_counter() - start

    setattr(home, name, call)
    try:
        yield
    finally:
        setattr(home, name, original)


def run(settings: Settings) -> Report:
    """Rows "ms" per step; notes: the share of a step outside the kernels."""
    torch.set_num_threads(1)
    sizes = (500, 2_000) if settings.quick else SIZES
    sides = {words: Side(words, settings.quick) for words in sizes}
    taken = in_turn(
        {f"{words:,} words": side.milliseconds for words, side in sides.items()}, rounds=3 if settings.quick else 8
    )
    rows = [row("one step, small", name, values, threads=1, unit="ms") for name, values in taken.items()]
    faster(rows[1], rows[0], GOAL)
    outside = {
        f"{words:,} words": f"{significant(100 * float(np.median(side.shares)), 2)} %" for words, side in sides.items()
    }
    return Report(rows=rows, notes={"of a step, outside the model's kernels": outside, "aim": "at most 5 %"})
