"""What a large vocabulary costs: one step of the preset "small" with 10,000 words and with 800,000, and what of a step
is spent outside the model's kernels.

Only the rows of the softmax table that a step uses are touched, so that a step should not cost more with more words.
The kernels: characters to hidden states, the sampled softmax, their backward passes, the clip and the update.
"""

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.cases import Settings
from benchmarks.results import Report, faster, measure, significant
from benchmarks.trainers import silent_trainer, step_of
from elmo_fast.corpus import Corpus, encode
from elmo_fast.pretrain.config import PretrainConfig, load_preset
from elmo_fast.pretrain.step import training_step
from elmo_fast.text import MARKERS, Vocabulary

SIZES = (10_000, 800_000)
GOAL = 1 / 1.15
KERNELS = ((training_step.Step, "_losses"), (training_step, "clip_and_step"), (torch.Tensor, "backward"))


def corpus_of(words: int, sentences: int) -> Corpus:
    """Random text in a vocabulary of so many words: always the same text, of the words that all vocabularies have."""
    names = [*MARKERS, *(f"w{i}" for i in range(words - len(MARKERS)))]
    chosen = np.random.default_rng(0).random((sentences, 25))
    # As frequent as the sampler has them.
    ids = np.minimum((SIZES[0] + 1.0) ** chosen - 1, min(words, SIZES[0]) - 1).astype(int)
    return encode(([names[max(i, 3)] for i in line] for line in ids), Vocabulary(names))


class Side:
    """A trainer over so many words, and how long its steps take."""

    def __init__(self, words: int, quick: bool) -> None:
        small = {"batch_size": 2, "n_negative_samples_batch": 64} if quick else {}
        config = PretrainConfig.from_flat(load_preset("small").flat() | small)
        self.step = step_of(silent_trainer(config, corpus_of(words, 500 if quick else 20_000)), report_every=5)
        self.inside = 0.0
        self.shares: list[float] = []

    def milliseconds(self) -> float:
        """The time of the next step, reading and reporting included."""
        self.inside = 0.0
        with contextlib.ExitStack() as stack:
            for home, name in KERNELS:
                stack.enter_context(mock.patch.object(home, name, self.timed(getattr(home, name))))
            taken = self.step()
        self.shares.append(1 - 1000 * self.inside / taken)
        return taken

    def timed(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """A kernel whose calls are added to `inside`."""

        @functools.wraps(kernel)
        def call(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return kernel(*arguments, **named)
            finally:
                self.inside += time.perf_counter() - start

        return call


def run(settings: Settings) -> Report:
    """Rows "ms" per step; notes: the share of a step outside the kernels."""
    torch.set_num_threads(1)
    sizes = (500, 2_000) if settings.quick else SIZES
    sides = {words: Side(words, settings.quick) for words in sizes}
    timed = {f"{words:,} words": side.milliseconds for words, side in sides.items()}
    rows = measure("one step, small", timed, 3 if settings.quick else 8, unit="ms")
    faster(rows[1], rows[0], GOAL)
    outside = {
        f"{words:,} words": f"{significant(100 * float(np.median(side.shares)), 2)} %" for words, side in sides.items()
    }
    return Report(rows=rows, notes={"of a step, outside the model's kernels": outside, "aim": "at most 5 %"})
