"""Perplexity of held-out text: over all words, carried state, every word counted once in each direction; gaps in it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo_fast._runtime.devices import to_device_together
from elmo_fast.corpus import Corpus
from elmo_fast.corpus.streams import Stream, StreamBatch
from elmo_fast.errors import ElmoFastError, check_counts, printable
from elmo_fast.ops import _graphs
from elmo_fast.ops._packed import owned_weights
from elmo_fast.pretrain.language_model import GAP, LanguageModel, make_input_reader
from elmo_fast.pretrain.processes import Processes
from elmo_fast.text.vocabulary import MARKERS


def perplexity(loss: float) -> float:
    """Return exp of a loss in nats, at most exp(700): floats overflow, and a diverging run must still be reported."""
    return math.exp(min(loss, 700.0))


@dataclass(frozen=True)
class Perplexity:
    """How well a text is predicted: mean losses in nats per word, sentence ends counted as words.

    words: predicted in each direction, with the sentence ends; sentence_ends: how many of them are ends; how: how the
    probabilities are computed, where they are not a plain softmax's (the loss's `explanation`);
    sentences: where they were asked for, the losses of each sentence with its end, nats, [2, sentences] float64,
    forward and backward.
    """

    forward_loss: float
    backward_loss: float
    words: int
    how: str = field(default="", compare=False)
    sentence_ends: int = field(default=0, compare=False)
    sentences: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    @property
    def forward(self) -> float:
        return perplexity(self.forward_loss)

    @property
    def backward(self) -> float:
        return perplexity(self.backward_loss)

    @property
    def mean(self) -> float:
        """Return exp of the mean of both losses, which is what bilm-tf prints."""
        return perplexity((self.forward_loss + self.backward_loss) / 2)

    def __str__(self) -> str:
        how = f" ({self.how})" if self.how else ""
        ends = f" and {self.sentence_ends:,} sentence ends" if self.sentence_ends else ""
        return (
            f"{self.mean:.2f} (forward {self.forward:.2f}, backward {self.backward:.2f}) over "
            f"{self.words - self.sentence_ends:,} words{ends}{how}"
        )


@torch.no_grad()
def evaluate(
    model: LanguageModel,
    corpus: Corpus,
    *,
    batch_size: int = 256,
    unroll_steps: int = 20,
    per_sentence: bool = False,
    progress: Callable[[int], None] | None = None,
    processes: Processes | None = None,
) -> Perplexity:
    """Perplexity of a text in its order; dropout is off, every row starts from a zero state and carries it to its end.

    corpus: encoded with the vocabulary the model was trained with; batch_size: rows, at most one per sentence, each its
    own part of the text, so another number gives a slightly different figure; per_sentence: return the losses of each
    sentence too (16 bytes a word); progress: called with the words of each step; processes: the processes that share
    the rows, and all get the figures.

    Raises ElmoFastError when the text has no words or its vocabulary is not the model's.
    """
    check_counts(batch_size=batch_size, unroll_steps=unroll_steps)
    if corpus.tokens == 0:
        raise ElmoFastError("the text to evaluate contains no words; every line is blank")
    model.check_vocabulary(corpus.vocabulary, "the text's vocabulary")
    rows, processes, device = min(batch_size, corpus.sentences), processes or Processes(), model.softmax_weight.device
    total = torch.zeros(2, dtype=torch.float64, device=device)
    each = torch.zeros(2, corpus.positions if per_sentence else 0, dtype=torch.float64, device=device)
    first, last = (number * rows // processes.size for number in (processes.rank, processes.rank + 1))
    if first < last:  # there may be more processes than rows
        own: dict[str, Any] = {"first_row": first, "row_count": last - first, "ahead": device.type != "cpu"}
        stream = Stream(corpus, rows, unroll_steps, seed=None, **own)
        bounds = stream.row_bounds[first : last + 1]
        training = model.training
        model.eval()
        try:
            for step, (batch, losses) in enumerate(_losses(model, stream)):
                total += losses.sum(1, dtype=torch.float64)
                if per_sentence:
                    # The positions in the text of the filled places, row by row, forward and backward, [2, n].
                    offsets = unroll_steps * step + np.arange(unroll_steps)
                    forward, backward = bounds[:-1, None] + offsets, bounds[1:, None] - 1 - offsets
                    filled = np.arange(unroll_steps) < batch.filled[:, None]
                    index = torch.from_numpy(np.stack([forward[filled], backward[filled]])).to(each.device)
                    each.scatter_(1, index, losses.double())
                if progress is not None:
                    progress(int(batch.filled.sum()))
        finally:
            model.train(training)
    _graphs.release(device)  # what runs next may need their memory
    ahead, back = (processes.sum_(total) / corpus.positions).tolist()
    sentences = None
    if per_sentence:
        _, lengths = corpus.places(np.arange(corpus.sentences))
        sentences = np.add.reduceat(processes.sum_(each).cpu().numpy(), np.cumsum(lengths) - lengths, axis=1)
    return Perplexity(ahead, back, corpus.positions, model.loss.explanation, corpus.sentences, sentences=sentences)


def _losses(model: LanguageModel, stream: Stream) -> Iterator[tuple[StreamBatch, Tensor]]:
    """Each step of an epoch and the losses of its filled places, row by row, [2, n], in each direction's order."""
    device = model.softmax_weight.device
    reader, state, steps = make_input_reader(model.options, stream.corpus, device), None, stream.unroll_steps
    cache, call = model.bilm.encoder.new_cache(), object()
    for step in range(stream.steps_per_epoch):
        batch, lengths = stream.batch(0, step), None
        partial = bool((batch.filled < steps).any())
        if partial:
            lengths = torch.from_numpy(batch.filled).to(device)
        types, targets = to_device_together([batch.types, batch.targets.flatten(1)], device)
        with owned_weights(call):
            hidden, state = model(types, reader, state, lengths, cache=cache)
        hidden = hidden.flatten(1, 2)
        if partial:
            filled = np.flatnonzero(np.arange(steps) < batch.filled[:, None])
            index = torch.from_numpy(filled).to(device)
            hidden, targets = hidden.index_select(1, index), targets.index_select(1, index)
        losses = model.loss.exact_losses(hidden.flatten(0, 1), targets.flatten())
        yield batch, losses.view_as(targets)


def gap_lines(model: LanguageModel, corpus: Corpus, count: int = 3) -> list[str]:
    """Return a line for each of some sentences of a text, always the same: its longest word taken out, and put back.

    Of sentences of 4 to 20 words; the word is one of the vocabulary.
    """
    begins, positions = corpus.places(np.arange(corpus.sentences))
    chosen = np.flatnonzero((positions > 4) & (positions <= 21))
    lines, model.vocabulary = list[str](), corpus.vocabulary
    for index in np.random.default_rng(0).permutation(chosen)[: 10 * count].tolist():
        words = corpus.words(begins[index], positions[index])
        known = [place for place, word in enumerate(words) if word in corpus.vocabulary and word not in MARKERS]
        if known and len(lines) < count:
            place = max(known, key=lambda place: len(words[place]))
            gapped = [*words[:place], GAP, *words[place + 1 :]]
            answers = ", ".join(f"{each.word} {each.probability:.1%}" for each in model.fill(gapped, topn=3)[0])
            lines.append(printable(f"gap    {' '.join(gapped)}: {answers} (wanted: {words[place]})"))
    return lines
