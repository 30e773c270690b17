"""One step of pretraining: against plain torch, with 10,000 and with 800,000 words, and with each loss.

Plain torch is the reference backend of every op in float32, a dense gradient of the softmax table and torch's own fused
AdaGrad over whole tensors. All its sides start from equal weights, read the same batches, draw the same negatives and
carry their own state.
"""

import functools
import itertools
import pathlib
from collections import Counter

import numpy as np
import pytest
import torch

from benchmarks import inputs, table
from benchmarks.inputs import words_of_step
from elmo_fast.checkpoints import LOSSES
from elmo_fast.corpus import encode
from elmo_fast.pretrain.config import ModelConfig, PretrainConfig, load_preset
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.evaluate import evaluate
from elmo_fast.pretrain.language_model import LanguageModel, make_language_model, options_of
from elmo_fast.pretrain.log import RunLog
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.step import Step
from elmo_fast.pretrain.trainer import Trainer
from elmo_fast.text import MARKERS, Vocabulary, count_words

ROWS, STEPS = 8, 20  # as table.STEP says
PLAIN = "plain torch, float32"
SIDES = {
    PLAIN: {"precision": "float32", "backend": "reference", "sparse": False},
    "elmo_fast, float32": {"precision": "float32", "backend": "native", "sparse": True},
    "elmo_fast, bfloat16": {"precision": "bfloat16", "backend": "native", "sparse": True},
}


class Stepper:
    """One side: a model with weights of a fixed seed, its optimizer, and its place in the batches."""

    def __init__(self, batches, words, negatives, quick, *, sparse, **how):
        model = ModelConfig(dim=256, projection_dim=64, n_highway=1) if quick else ModelConfig()
        torch.manual_seed(0)
        self.model = LanguageModel(options_of(model, words, n_negative_samples_batch=negatives), **how)
        weights = self.model.parameters()
        optimizer: torch.optim.Optimizer
        if how["backend"] == "native":
            optimizer = AdaGrad(weights, 0.2)
        else:
            optimizer = torch.optim.Adagrad(weights, 0.2, eps=0.0, initial_accumulator_value=1.0, fused=True)
        self.update = Step(self.model, optimizer, batches[0][1], rows=ROWS, clip_norm=10.0, sparse=sparse)
        self.batches, self.state, self.count = itertools.cycle(batches), None, 0

    def step(self):
        """Take the next step; dropout masks come from the step's number, so all sides have the same."""
        batch, self.update.characters = next(self.batches)
        result = self.update(batch, self.state, self.count)
        self.state, self.count = result.state, self.count + 1
        return result[:2]


@pytest.fixture(scope="module")
def steppers(text, quick):
    words, negatives = (1000, 64) if quick else (100_000, 8192)
    running = [word for sentence in text.sentences for word in sentence]
    ranks = {word: i % words for i, (word, _) in enumerate(Counter(running).most_common())}
    count = ROWS * STEPS
    starts = range(0, min(len(running), 20 * 2 * count) - 2 * count, 2 * count)
    batches = [words_of_step(running[i : i + count], running[i + count : i + 2 * count], ranks, ROWS) for i in starts]
    return {name: Stepper(batches, words, negatives, quick, **how) for name, how in SIDES.items()}, {}


@pytest.mark.turns(12)
@pytest.mark.parametrize("side", SIDES)
def bench_against_plain_torch(timed, steppers, side, turn, text):
    """The error is of the losses of all steps, both directions."""
    sides, losses = steppers
    losses[turn, side] = timed(table.STEP, sides[side].step, warmup=int(turn == 0), against=PLAIN)
    errors = [abs(a - b) for t, s in losses if s == side for a, b in zip(losses[t, s], losses[t, PLAIN], strict=True)]
    if side != PLAIN:
        timed.error(max(errors), "plain torch's losses")
    timed.note("text", text.source)
    timed.note("step", "original architecture, 8,192 negatives of 100,000 words, dropout 0.1")


def trainer_of(preset, changes, corpus, **more):
    """Return a trainer of a new model that prints nothing."""
    config = PretrainConfig.from_flat(load_preset(preset).flat() | changes)
    model = make_language_model(config, len(corpus.vocabulary), **more)
    return Trainer(config, model, corpus, RunLog(pathlib.Path(), lambda line: None, writes=False))


@functools.cache
def trainer_of_words(words, quick):
    """A trainer of the preset small on random text: always the same text, of words that all vocabularies have."""
    names = [*MARKERS, *(f"w{i}" for i in range(words - len(MARKERS)))]
    chosen = np.random.default_rng(0).random((500 if quick else 20_000, 25))
    ids = np.minimum(10_001.0**chosen - 1, min(words, 10_000) - 1).astype(int)  # as frequent as the sampler has them
    small = {"batch_size": 2, "n_negative_samples_batch": 64} if quick else {}
    return trainer_of("small", small, encode(([names[max(i, 3)] for i in line] for line in ids), Vocabulary(names)))


@pytest.mark.case("vocabulary")
@pytest.mark.turns(8)
@pytest.mark.parametrize("side", ["10,000 words", "800,000 words"])
def bench_vocabulary(timed, side):
    """Only the rows of the softmax table that a step uses are touched, so more words should not cost more."""
    words = int(side.split()[0].replace(",", "")) // (20 if timed.quick else 1)
    timed("one step, preset small", trainer_of_words(words, timed.quick).step, against="10,000 words")


@functools.cache
def trainer_of_loss(path, quick, **changes):
    """(a trainer of the preset tiny on nine tenths of the text, the rest of it)"""
    sentences = inputs.read_text(path).sentences
    cut = len(sentences) * 9 // 10
    training, heldout = sentences[:cut], sentences[cut:]
    vocabulary = Vocabulary.build(count_words(training), load_preset("tiny").data.min_count)
    corpus = encode(training, vocabulary)
    small = {"batch_size": 2, "n_negative_samples_batch": 16} if quick else {}
    trainer = trainer_of("tiny", small | changes, corpus, counts=target_counts(corpus))
    return trainer, encode(heldout, vocabulary)


@pytest.mark.case("output_layers")
@pytest.mark.turns(6)
@pytest.mark.parametrize("side", [*LOSSES, "sampled_softmax, input words"])
def bench_losses(timed, side, turn, request):
    """Steps of each loss; exact held-out perplexity after 300 of them."""
    loss, _, words = side.partition(", ")
    changes = {"loss": loss, **({"input": "words"} if words else {})}
    trainer, heldout = trainer_of_loss(request.config.getoption("text"), timed.quick, **changes)

    def step():
        trainer.step()
        if trainer.progress.step % 50 == 0:
            trainer.report()

    timed("one step, preset tiny", step, rounds=50, warmup=0, against=next(iter(LOSSES)))
    if turn == 5 or timed.quick:
        variant = f"held out, after {trainer.progress.step} steps"
        timed.figure(variant, side, evaluate(trainer.model, heldout).mean, "perplexity")
