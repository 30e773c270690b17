"""One training step against the formulas, written out here on the whole table in float64."""

import random
import threading

import pytest
import torch

from elmo_fast import ops
from elmo_fast.corpus import encode
from elmo_fast.ops import log_uniform_sample
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.language_model import make_input_reader, make_language_model
from elmo_fast.pretrain.optimizer import AdaGrad, make_optimizer
from elmo_fast.pretrain.step import Step
from elmo_fast.text import Vocabulary, count_words
from elmo_fast.threads import torch_threads
from tests.pretrain.toy import toy_batches, toy_config, toy_corpus, toy_model, toy_reader, toy_step

SAMPLES, SEED = 6, 11


def setting(dtype=torch.float64, device="cpu", **changes):
    corpus, config = toy_corpus(), toy_config(**{"dropout": 0.0} | changes)
    return toy_model(config, corpus).to(device, dtype), toy_batches(config, corpus)


def run(model, words, state=None):
    """(forward [B·T, D], backward [B·T, D], state) of a model over one step's words."""
    hidden, state = model(words.types, toy_reader(model), state)
    return (*hidden.flatten(1, 2), state)


def hand_loss(hidden, targets, weight, bias, draw):
    """Mean of -log softmax over {target} and the sample, each logit less ln Q, hits of the target left out."""
    vocabulary = len(bias)
    samples, tries = log_uniform_sample(SAMPLES, vocabulary, seed=SEED, offset=draw)
    ids = torch.arange(vocabulary, dtype=torch.float64)
    chance = ((ids + 2) / (ids + 1)).log() / torch.tensor(vocabulary + 1.0, dtype=torch.float64).log()
    expected = chance * SAMPLES if tries == SAMPLES else 1 - (1 - chance) ** tries
    logits = hidden @ weight.T + bias - expected.log()
    losses = []
    for row, target in zip(logits, targets.tolist(), strict=True):
        others = [s for s in samples.tolist() if s != target]
        losses.append(torch.logsumexp(row[[target, *others]], 0) - row[target])
    return torch.stack(losses).mean()


def test_the_losses_and_the_update_are_the_formulas():
    """Mean losses; gradient of ½ Σ loss / R, which is T times the mean where all is filled; AdaGrad on every parameter.

    Three steps in a row, of which the last is filled in part.
    """
    model, batches = setting()
    twin, _ = setting()
    twin.load_state_dict(model.state_dict())
    step = toy_step(model, AdaGrad(model.parameters(), 0.2, 1.0))
    sums = [torch.ones_like(p) for p in twin.parameters()]
    state = twin_state = None
    assert [batch.filled.tolist() for batch in batches] == [[5, 5, 5], [5, 5, 5], [5, 5, 4]]
    for number, batch in enumerate(batches):
        result = step(batch, state, number)
        forward, backward, twin_state = run(twin, batch, twin_state)
        text = (torch.arange(5) < torch.from_numpy(batch.filled)[:, None]).flatten()
        losses = [
            hand_loss(hidden[text], targets.flatten()[text], twin.softmax_weight, twin.softmax_bias, 2 * number + way)
            for way, (hidden, targets) in enumerate(zip((forward, backward), batch.targets, strict=True))
        ]
        assert result.forward == pytest.approx(losses[0].item(), rel=1e-12)
        assert result.backward == pytest.approx(losses[1].item(), rel=1e-12)
        objective = batch.words / 3 * (losses[0] + losses[1]) / 2
        gradients = torch.autograd.grad(objective, list(twin.parameters()))
        norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt().item()
        assert result.gradient_norm == pytest.approx(norm, rel=1e-10)
        with torch.no_grad():
            for parameter, gradient, total in zip(twin.parameters(), gradients, sums, strict=True):
                total += gradient**2
                parameter -= 0.2 * gradient / total.sqrt()
        for (name, ours), wanted in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-12, msg=name)
        state = result.state


def test_what_is_not_filled_changes_nothing():
    """Other words in the unfilled places of the last step: the same loss, update and, past them, state."""
    results = []
    for other in (False, True):
        torch.manual_seed(3)
        model, batches = setting()
        last = batches[2]
        if other:
            last.types[:, 2, 4], last.targets[:, 2, 4] = 5, 5
        result = toy_step(model)(last, None, 0)
        results.append((result.forward, result.backward, result.gradient_norm, *result.state, model.state_dict()))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_rows_without_words_add_nothing():
    """An epoch's last step, in which one of three rows has no word left: a micro-batch of it alone, and a share."""
    results = []
    for parts in (1, 3):
        torch.manual_seed(3)
        model, batches = setting(torch.float32, unroll_steps=7)
        assert batches[-1].filled.tolist() == [1, 1, 0]
        result = toy_step(model, micro_batches=parts)(batches[-1], None, 2)
        results.append((result, model.state_dict()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-6)
    b = batches[-1]
    last = b._replace(types=b.types[:, 2:], targets=b.targets[:, 2:], filled=b.filled[2:])
    alone = toy_step(model, first_row=2)(last, None, 3)
    assert (alone.forward, alone.backward, alone.gradient_norm) == (0, 0, 0)


def test_every_direction_and_step_draws_a_sample_of_its_own(monkeypatch):
    drawn = []

    def recording(*args, **kwargs):
        drawn.append((kwargs["seed"], kwargs["offset"]))
        return log_uniform_sample(*args, **kwargs)

    monkeypatch.setattr(ops, "log_uniform_sample", recording)
    model, batches = setting()
    step = toy_step(model, micro_batches=3)
    for number, batch in enumerate(batches):
        step(batch, None, number)
    assert len(drawn) == 6
    assert len(set(drawn)) == 6


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bit_operands_change_the_loss_a_little(precision):
    exact, batches = setting(torch.float32)
    rounded, _ = setting(torch.float32, precision=precision)
    rounded.load_state_dict(exact.state_dict())
    losses = [toy_step(m)(batches[0], None, 0).forward for m in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)


@pytest.mark.parametrize("parts", [1, 3])
def test_distinct_words_that_the_loader_counts_give_the_same_step(parts):
    """As those that the encoder finds, without a word of padding in any gradient."""
    results = []
    for known in (0, parts):
        torch.manual_seed(3)
        corpus, config = toy_corpus(), toy_config()
        model, batches = toy_model(config, corpus).double(), toy_batches(config, corpus, distinct_parts=known)
        if known:
            model.bilm.encoder._distinct = None
        step, state = toy_step(model, micro_batches=parts), None
        for number, batch in enumerate(batches):
            forward, backward, norm, state = step(batch, state, number)
        results.append((forward, backward, norm, *state, model.state_dict()))
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", ["sampled_softmax", "negative_sampling", "full_softmax"])
def test_words_sampled_ahead_are_those_of_the_step(loss):
    """In the order of steps, of which one is left out, as after a resume; a thread samples all but two of them."""
    results, threads = [], []
    for ahead in (False, True):
        torch.manual_seed(3)
        corpus, config = toy_corpus(), toy_config(loss=loss)
        model = make_language_model(config, len(corpus.vocabulary), counts=target_counts(corpus))
        batches = toy_batches(config, corpus)
        step, state, draw = toy_step(model), None, model.loss.draw
        step.samples_ahead = ahead
        model.loss.draw = lambda *each, draw=draw: threads.append(threading.current_thread()) or draw(*each)
        for number in (0, 1, 2, 4, 5):
            state = step(batches[number % len(batches)], state, number).state
        results.append([*state, *model.state_dict().values()])
    assert all(map(torch.equal, *results))
    assert [each is threading.main_thread() for each in threads[10:14]] == [True, True, False, False]
    assert sum(each is threading.main_thread() for each in threads[10:]) == 4


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
