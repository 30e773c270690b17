"""Perplexity of held-out text: the whole softmax, carried state, every word counted once."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import full_softmax
from elmo_fast.pretrain.corpus import Corpus
from elmo_fast.pretrain.language_model import LanguageModel, State
from elmo_fast.pretrain.streams import Batch, Window, single_pass
from elmo_fast.pretrain.tensors import Encoder


@dataclass(frozen=True)
class Perplexity:
    """How well a text is predicted: mean losses in nats per word, sentence ends counted as words."""

    forward_loss: float
    backward_loss: float
    words: int

    @property
    def forward(self) -> float:
        return math.exp(self.forward_loss)

    @property
    def backward(self) -> float:
        return math.exp(self.backward_loss)

    @property
    def mean(self) -> float:
        """exp of the mean of both losses, which is what bilm-tf prints."""
        return math.exp((self.forward_loss + self.backward_loss) / 2)

    def __str__(self) -> str:
        return f"{self.mean:.2f} (forward {self.forward:.2f}, backward {self.backward:.2f}) over {self.words:,} words"


def _windows(corpus: Corpus, batch_size: int, unroll_steps: int) -> Iterator[Batch]:
    """Both directions' windows in step; the direction that ends first goes on with empty ones."""
    shape = (batch_size, unroll_steps)
    nothing = Window(np.full(shape, corpus.begin, np.int32), np.zeros(shape, np.int32), np.zeros(batch_size, np.int64))
    streams = [single_pass(corpus, batch_size, unroll_steps, reverse) for reverse in (False, True)]
    for forward, backward in zip_longest(*streams, fillvalue=nothing):
        yield Batch(forward, backward)


def _total_loss(model: LanguageModel, hidden: Tensor, targets: Tensor, window: Window, chunk_bytes: int) -> Tensor:
    """The sum of the losses of the words that are text, [] float64, not waited for; which they are the host knows."""
    filled = np.flatnonzero(np.arange(window.inputs.shape[1]) < window.filled[:, None])
    places = torch.from_numpy(filled).to(hidden.device, non_blocking=True)
    losses = full_softmax(
        hidden.index_select(0, places),
        targets.index_select(0, places),
        model.softmax_weight,
        model.softmax_bias,
        chunk_bytes=chunk_bytes,
        precision=model.precision,
    )
    return losses.sum(dtype=torch.float64)


def evaluate(
    model: LanguageModel,
    corpus: Corpus,
    *,
    batch_size: int = 256,
    unroll_steps: int = 20,
    chunk_bytes: int = 32 * 2**20,
    device: torch.device | str = "cpu",
) -> Perplexity:
    """Perplexity of a text in file order; dropout is off, every row starts from a zero state and carries it to its end.

    corpus: encoded with the vocabulary the model was trained with; batch_size: rows, each its own stream of sentences,
    so that another number gives a slightly different state and figure; chunk_bytes: bound of the logits held at a time.

    Raises ElmoFastError when the text has no words or its vocabulary is not the model's.
    """
    if corpus.tokens == 0:
        raise ElmoFastError("the text to evaluate has no words")
    if corpus.vocabulary_size != len(model.softmax_bias):
        raise ElmoFastError(
            f"the vocabulary must have the {len(model.softmax_bias):,} words the model was trained with; "
            f"got {corpus.vocabulary_size:,}"
        )
    batch_size = min(batch_size, corpus.sentences)
    encoder = Encoder(corpus, model.options.char_cnn.max_characters_per_token, device)  # type: ignore[union-attr]
    totals, state, training = torch.zeros(2, dtype=torch.float64, device=device), None, model.training
    model.eval()
    try:
        with torch.no_grad():
            for windows in _windows(corpus, batch_size, unroll_steps):
                state = _add_window(model, encoder, windows, state, totals, chunk_bytes)
    finally:
        model.train(training)
    words = corpus.tokens + corpus.sentences
    forward, backward = (totals / words).tolist()
    return Perplexity(forward, backward, words)


def _add_window(
    model: LanguageModel, encoder: Encoder, windows: Batch, state: State | None, totals: Tensor, chunk_bytes: int
) -> State:
    batch = encoder.batch(windows)
    forward, backward, state = model(batch.forward.ids, batch.backward.ids, state)
    for way, (hidden, side, window) in enumerate(zip((forward, backward), batch, windows, strict=True)):
        totals[way] += _total_loss(model, hidden, side.targets, window, chunk_bytes)
    return state
