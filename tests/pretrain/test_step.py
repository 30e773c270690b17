"""One training step against the formulas, written out here on the whole table in float64."""

import json

import pytest
import torch

from elmo_fast import ops
from elmo_fast.ops import log_uniform_sample
from elmo_fast.pretrain.log import TrainingProgress
from elmo_fast.pretrain.optimizer import AdaGrad
from elmo_fast.pretrain.step import StepResult
from tests.backends import backends, device_of
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


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_micro_batches_give_the_same_step(dropout):
    """Three rows at once, or one after the other: losses, norm, state and weights, with dropout too."""
    results = []
    for parts in (1, 3):
        torch.manual_seed(3)
        model, batches = setting(dropout=dropout)
        step, state, found = toy_step(model, micro_batches=parts), None, []
        for number, batch in enumerate(batches):
            result = step(batch, state, number)
            state = result.state
            found.append(result)
        results.append((found, model.state_dict()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)


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


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_gradient_is_clipped_before_the_update(backend):
    model, batches = setting()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    result = toy_step(model, AdaGrad(model.parameters(), 0.2, 1.0, backend=backend), clip_norm=1e-3)(
        batches[0], None, 0
    )
    assert result.gradient_norm > 1.0
    moved = sum((p - before[name]).square().sum() for name, p in model.named_parameters()) ** 0.5
    assert moved.item() == pytest.approx(0.2 * 1e-3, rel=1e-4)


@pytest.mark.parametrize("clip_norm", [1e9, 2.0])
@pytest.mark.parametrize("backend", backends("adagrad", reference=True))
def test_an_optimizer_as_on_a_gpu_trains_alike(backend, clip_norm):
    """Norm and clip as tensors on the device, the table's gradient as rows in any order: the weights of the CPU's way.

    The norm is a tensor that nothing has read; a step whose norm is no number is left out, and the next goes on.
    """
    results = []
    for name in ("auto", backend):
        torch.manual_seed(3)
        model, batches = setting(torch.float32, "cpu" if name == "auto" else device_of(name))
        optimizer = AdaGrad(model.parameters(), 0.2, 1.0, backend=name)
        step = toy_step(model, optimizer, clip_norm=clip_norm)
        norms = [step(batch, None, k).gradient_norm for k, batch in enumerate(batches)]
        results.append((norms, {name: tensor.cpu() for name, tensor in model.state_dict().items()}))
    assert all(isinstance(norm, float) for norm in results[0][0])
    assert all(isinstance(norm, torch.Tensor) and norm.dim() == 0 for norm in results[1][0])
    assert [norm.item() for norm in results[1][0]] == pytest.approx(results[0][0], rel=1e-4)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-4, atol=1e-5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.softmax_bias.register_hook(lambda gradient: gradient * float("nan"))
    assert step(batches[0], None, 3).gradient_norm.isnan()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert optimizer.skipped == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_updating_rows_or_the_whole_table_gives_the_same_weights(dtype):
    results = []
    for sparse in (True, False):
        torch.manual_seed(3)
        model, batches = setting(dtype)
        step, state = toy_step(model, AdaGrad(model.parameters(), 0.2, 1.0), clip_norm=2.0, sparse=sparse), None
        for number, batch in enumerate(batches):
            result = step(batch, state, number)
            state = result.state
        assert model.softmax_weight.grad.is_sparse == sparse
        results.append((result.gradient_norm, model.state_dict()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1])


def test_state_is_carried_and_its_gradient_cut():
    """The second window's loss depends on the state after the first, which is no longer attached to its graph."""
    model, (first, second, _) = setting()
    *hidden, state = run(model, first)
    assert not any(part.requires_grad for part in state)
    assert all(part.abs().max() > 0 for part in state)
    carried, fresh = run(model, second, state), run(model, second)
    assert not torch.allclose(carried[0], fresh[0])
    assert not torch.allclose(carried[1], fresh[1])
    whole = run(model, first._replace(types=torch.cat([first.types, second.types], dim=2)))
    for way in range(2):
        halves = torch.cat([hidden[way].view(3, 5, -1), carried[way].view(3, 5, -1)], dim=1)
        torch.testing.assert_close(halves, whole[way].view(3, 10, -1))


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


def test_dropout_falls_while_training_only():
    model, (words, *_) = setting(dropout=0.5)
    assert not torch.equal(run(model.train(), words)[0], run(model, words)[0])
    assert (run(model, words)[0] == 0).float().mean() > 0.3
    assert torch.equal(run(model.eval(), words)[0], run(model, words)[0])


def test_dropout_is_a_function_of_seed_and_step():
    """Torch's own generator has no say; another step's masks give another loss."""
    losses = []
    for global_seed, number in ((1, 0), (2, 0), (1, 1)):
        model, batches = setting(dropout=0.4)
        torch.manual_seed(global_seed)
        # One sample for all, so that only the masks differ.
        step = toy_step(model)
        drawn = log_uniform_sample(SAMPLES, len(model.softmax_bias), seed=SEED, offset=0)
        step._samples = lambda draw, device, drawn=drawn: drawn
        losses.append(step(batches[0], None, number).forward)
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bit_operands_change_the_loss_a_little(precision):
    exact, batches = setting(torch.float32)
    rounded, _ = setting(torch.float32, precision=precision)
    rounded.load_state_dict(exact.state_dict())
    losses = [toy_step(m)(batches[0], None, 0).forward for m in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)


def test_losses_that_are_tensors_are_reported_alike():
    """A GPU's losses stay tensors until a report, which then says what it says of numbers."""
    reports = []
    for kind in (float, torch.tensor):
        progress = TrainingProgress(10, None)
        for number in (1.5, 2.5):
            progress.add(StepResult(kind(number), kind(number + 2.0), kind(7.0), None), 4)
        row = progress.report()
        json.dumps(row)
        reports.append([row[name] for name in ("step", "loss", "loss_forward", "loss_backward", "gradient_norm")])
    assert reports[0] == reports[1] == [2, 3.0, 2.0, 4.0, 7.0]


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
