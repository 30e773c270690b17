"""One training step against the formulas, written out here on the whole table in float64; dropout and resets by row,
which do not depend on who holds a row."""

import copy
import random

import numpy as np
import pytest
import torch

from elmo_fast._runtime.threads import torch_threads
from elmo_fast.corpus import encode
from elmo_fast.ops import _sampling, _triton, log_uniform_sample
from elmo_fast.pretrain.corpora import target_counts
from elmo_fast.pretrain.language_model import LanguageModel, make_input_reader, make_language_model
from elmo_fast.pretrain.optimizer import AdaGrad, make_optimizer
from elmo_fast.pretrain.run import pretrain
from elmo_fast.pretrain.step import BLOCK, Step, cpu_dropout_factors, rows_to_reset
from elmo_fast.text import Vocabulary, count_words
from tests.pretrain.toy import quiet, toy_batches, toy_config, toy_corpus, toy_model, toy_reader, toy_step
from tests.support.hooks import called

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
        for (name, actual), expected in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12, msg=name)
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
    """Equal to those that the encoder finds, without a word of padding in any gradient."""
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


@pytest.mark.parametrize(
    ("loss", "input", "optimiser"),
    [
        ("sampled_softmax", "characters", "adagrad"),
        ("full_softmax", "words", "adamw"),
        ("negative_sampling", "words", "adagrad"),
        ("hierarchical_softmax", "characters", "adamw"),
    ],
)
def test_the_number_of_threads_changes_no_bit(loss, input, optimiser):
    """Twice the same, without the deterministic mode that the other tests run with."""
    torch.use_deterministic_algorithms(False)
    draw = random.Random(0)
    text = [[f"w{draw.randrange(5)}" for _ in range(20)] for _ in range(33)]
    corpus = encode(text, Vocabulary.build(count_words(text), 1))
    with torch_threads(1):
        expected = stepped(corpus, loss=loss, input=input, optimiser=optimiser)
    with torch_threads(2):
        for _ in range(2):
            assert all(map(torch.equal, stepped(corpus, loss=loss, input=input, optimiser=optimiser), expected))


# ---------------------------------------------------------------- dropout and resets of rows

PLANES, WIDTH = 6, 12


def philox_factors(*arguments):
    """The factors of a GPU, by their definition."""
    return _sampling.dropout_factors(*arguments, plain=True)


@pytest.fixture(params=[cpu_dropout_factors, philox_factors])
def factors(request):
    """Return the factors of each element, [PLANES, rows, WIDTH]."""

    def sample(first_row, rows, *, probability=0.3, seed=5, step=7):
        return request.param(probability, seed, torch.tensor([2 * step]), first_row, (PLANES, rows, WIDTH))

    return sample


@pytest.mark.parametrize(("first", "rows"), [(0, 1), (0, BLOCK), (5, 40), (BLOCK - 1, 2), (BLOCK, BLOCK), (70, 10)])
def test_a_row_drops_the_same_in_every_share(factors, first, rows):
    """Rows [first, first + rows) of 80 drop what they drop when one process holds all 80."""
    whole = factors(0, 80)
    assert whole.shape == (PLANES, 80, WIDTH)
    assert torch.equal(factors(first, rows), whole[:, first : first + rows])


@pytest.mark.parametrize("other", [{"seed": 6}, {"seed": 5 + 2**40}, {"step": 8}, {"step": 7 + 2**40}])
def test_another_seed_or_step_drops_others(factors, other):
    assert not torch.equal(factors(0, 8), factors(0, 8, **other))


def test_layers_directions_blocks_and_rows_differ(factors):
    whole = factors(0, 3 * BLOCK, probability=0.5)
    # 576 masks of 12 random bits: about 537 distinct ones.
    assert len(whole.flatten(0, 1).unique(dim=0)) > 480


def test_what_stays_is_scaled_so_that_the_mean_stays(factors):
    """Exactly p of many elements are dropped to within four standard deviations, the others times 1 / (1 - p)."""
    p = 0.3
    for y in factors(0, 2000):
        assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).item()}
        assert abs((y == 0).double().mean().item() - p) < 4 * (p * (1 - p) / y.numel()) ** 0.5


@pytest.mark.skipif(not _triton.INTERPRETED, reason="Triton's interpreter is off")
def test_dropout_in_triton_is_that_of_the_formula():
    """Rows of no whole blocks, one element, long rows; seeds and steps of more than 32 bits; almost all dropped."""
    for shape in ((2, 3, 10), (6, 2, 1500), (1, 1, 1)):
        for p, seed, offset, first in ((0.1, 1, 5, 0), (0.5, 2**40 + 3, 2**33 + 1, 70), (1 - 1e-10, 0, 0, 2)):
            rest = seed, torch.tensor([offset]), first, shape
            assert torch.equal(_sampling.dropout_factors(p, *rest), philox_factors(p, *rest))


def test_the_chance_is_that_of_every_row_and_step():
    """400 steps of 100 rows: the mean within five deviations, no row or step left out; other steps, other rows."""
    drawn = np.stack([rows_to_reset(0.1, 3, step, 100) for step in range(400)])
    assert abs(drawn.mean() - 0.1) < 5 * (0.1 * 0.9 / drawn.size) ** 0.5
    assert drawn.any(axis=0).all()
    assert len({row.tobytes() for row in drawn}) == 400
    assert not np.array_equal(rows_to_reset(0.1, 3, 0, 100), rows_to_reset(0.1, 4, 0, 100))


def test_a_step_reads_with_the_rows_that_begin_anew(tmp_path):
    """The network's state in each step is the one that the step before left, less the sampled rows; without resets,
    all."""
    starts, ends = [], []
    before = lambda inputs: starts.append(copy.deepcopy(inputs[2]))  # noqa: E731
    with called(LanguageModel, before, lambda output: ends.append([each.clone() for each in output[1]])):
        pretrain(toy_config(tmp_path, state_reset=0.5, max_steps=9), report=quiet)
    zeros = 0
    for number, (before, after) in enumerate(zip(ends, starts[1:], strict=False), 1):
        fresh = torch.from_numpy(rows_to_reset(0.5, 0, number, 3))
        zeros += int(fresh.sum())
        assert all(torch.equal(a, b.masked_fill(fresh[:, None], 0)) for a, b in zip(after, before, strict=True))
    assert 0 < zeros < 24
