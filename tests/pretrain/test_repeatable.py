"""A step of training, taken again from the same start, gives the same bits: no sum is in the order of the threads."""

import random

import pytest
import torch

from elmo_fast.corpus import encode
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.language_model import make_input_reader, make_language_model
from elmo_fast.pretrain.optimizer import make_optimizer
from elmo_fast.pretrain.step import Step
from elmo_fast.text import Vocabulary, count_words
from elmo_fast.threads import torch_threads
from tests.pretrain.toy import toy_batches, toy_config

# 640 words of 64 numbers, most of them of few words: torch adds what is smaller on one thread.
SIZES = {"projection_dim": 64, "dim": 64, "batch_size": 32, "unroll_steps": 20, "n_negative_samples_batch": 30}


def stepped(corpus, **changes):
    """The weights after a step, and the norm of its gradient."""
    config = toy_config(**SIZES | changes)
    model = make_language_model(config, len(corpus.vocabulary), counts=target_counts(corpus))
    sparse = config.optimizer.optimiser == "adagrad"
    reader, rows = make_input_reader(model.options, corpus, "cpu"), config.optimizer.batch_size
    step = Step(model, make_optimizer(config.optimizer, model), reader, rows=rows, clip_norm=10.0, sparse=sparse)
    result = step(toy_batches(config, corpus)[0], None, 0)
    return [*model.state_dict().values(), torch.tensor(result.gradient_norm)]


@pytest.mark.parametrize(("input", "optimiser"), [("characters", "adagrad"), ("words", "adamw")])
@pytest.mark.parametrize("loss", ["sampled_softmax", "full_softmax", "negative_sampling", "hierarchical_softmax"])
def test_a_step_on_two_threads_gives_the_same_bits_again(loss, input, optimiser):
    """As a user runs it: without torch's deterministic mode, which the other tests are run in."""
    torch.use_deterministic_algorithms(False)
    draw = random.Random(0)
    text = [[f"w{draw.randrange(5)}" for _ in range(20)] for _ in range(33)]
    corpus = encode(text, Vocabulary.build(count_words(text), 1))
    with torch_threads(2):
        wanted, *others = [stepped(corpus, loss=loss, input=input, optimiser=optimiser) for _ in range(3)]
    for ours in others:
        assert all(map(torch.equal, ours, wanted))
