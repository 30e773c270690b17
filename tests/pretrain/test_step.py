"""One training step against the formulas, written out here on the whole table in float64."""

import itertools
import json

import pytest
import torch

from elmo_fast.ops import log_uniform_sample
from elmo_fast.pretrain import step as step_module
from elmo_fast.pretrain.adagrad import AdaGrad
from elmo_fast.pretrain.progress import Progress
from elmo_fast.pretrain.step import StepResult, train_step
from elmo_fast.pretrain.streams import training_batches
from elmo_fast.pretrain.tensors import Encoder
from tests.backends import backends, device_of
from tests.pretrain.toy import toy_config, toy_corpus, toy_model

SAMPLES, SEED = 6, 11


def setting(dtype=torch.float64, device="cpu", **changes):
    corpus, config = toy_corpus(), toy_config(dropout=0.0, **changes)
    model = toy_model(config, corpus).to(device, dtype)
    encoder = Encoder(corpus, config.model.max_characters_per_token, device)
    stream = training_batches(corpus, config.optimiser.batch_size, config.optimiser.unroll_steps, seed=1)
    return model, [encoder.batch(batch) for batch in itertools.islice(stream, 3)]


def step(model, optimiser, batch, state, number, clip_norm=1e9, **more):
    return train_step(
        model, optimiser, batch, state, num_samples=SAMPLES, clip_norm=clip_norm, seed=SEED, step=number, **more
    )


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
    """loss = (forward + backward) / 2, gradient of T·loss, one AdaGrad step on every parameter, two steps in a row."""
    model, batches = setting()
    twin, _ = setting()
    twin.load_state_dict(model.state_dict())
    optimiser = AdaGrad(model.parameters(), 0.2, 1.0)
    sums = [torch.ones_like(p) for p in twin.parameters()]
    state = twin_state = None
    for number, batch in enumerate(batches[:2]):
        result = step(model, optimiser, batch, state, number)
        forward, backward, twin_state = twin(batch.forward.ids, batch.backward.ids, twin_state)
        losses = [
            hand_loss(hidden, side.targets, twin.softmax_weight, twin.softmax_bias, 2 * number + way)
            for way, (hidden, side) in enumerate(zip((forward, backward), batch, strict=True))
        ]
        assert result.forward == pytest.approx(losses[0].item(), rel=1e-12)
        assert result.backward == pytest.approx(losses[1].item(), rel=1e-12)
        gradients = torch.autograd.grad(5 * (losses[0] + losses[1]) / 2, list(twin.parameters()))
        norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt().item()
        assert result.gradient_norm == pytest.approx(norm, rel=1e-10)
        with torch.no_grad():
            for parameter, gradient, total in zip(twin.parameters(), gradients, sums, strict=True):
                total += gradient**2
                parameter -= 0.2 * gradient / total.sqrt()
        for (name, ours), wanted in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-12, msg=name)
        state = result.state


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_gradient_is_clipped_before_the_update(backend):
    model, batches = setting()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = AdaGrad(model.parameters(), 0.2, 1.0, backend=backend)
    result = step(model, optimiser, batches[0], None, 0, clip_norm=1e-3)
    assert result.gradient_norm > 1.0
    moved = sum((p - before[name]).square().sum() for name, p in model.named_parameters()) ** 0.5
    assert moved.item() == pytest.approx(0.2 * 1e-3, rel=1e-4)


@pytest.mark.parametrize("clip_norm", [1e9, 2.0])
@pytest.mark.parametrize("backend", backends("adagrad", reference=True))
def test_an_optimiser_as_on_a_gpu_trains_alike(backend, clip_norm):
    """Norm and clip as tensors on the device, the table's gradient as rows in any order: the weights of the CPU's way.

    The norm is a tensor that nothing has read; a step whose norm is no number is left out, and the next goes on.
    """
    results = []
    for name in ("auto", backend):
        torch.manual_seed(3)
        model, batches = setting(torch.float32, "cpu" if name == "auto" else device_of(name))
        optimiser = AdaGrad(model.parameters(), 0.2, 1.0, backend=name)
        norms = [step(model, optimiser, batch, None, k, clip_norm).gradient_norm for k, batch in enumerate(batches)]
        results.append((norms, {name: tensor.cpu() for name, tensor in model.state_dict().items()}))
    assert all(isinstance(norm, float) for norm in results[0][0])
    assert all(isinstance(norm, torch.Tensor) and norm.dim() == 0 for norm in results[1][0])
    assert [norm.item() for norm in results[1][0]] == pytest.approx(results[0][0], rel=1e-4)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-4, atol=1e-5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.softmax_bias.register_hook(lambda gradient: gradient * float("nan"))
    assert step(model, optimiser, batches[0], None, 3).gradient_norm.isnan()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert optimiser.skipped == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_updating_rows_or_the_whole_table_gives_the_same_weights(dtype):
    results = []
    for sparse in (True, False):
        torch.manual_seed(3)
        model, batches = setting(dtype)
        optimiser = AdaGrad(model.parameters(), 0.2, 1.0)
        state = None
        for number, batch in enumerate(batches):
            result = step(model, optimiser, batch, state, number, clip_norm=2.0, sparse=sparse)
            state = result.state
        assert model.softmax_weight.grad.is_sparse == sparse
        results.append((result.gradient_norm, model.state_dict()))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1])


def test_state_is_carried_and_its_gradient_cut():
    """The second window's loss depends on the state after the first, which is no longer attached to its graph."""
    model, batches = setting()
    forward, backward, state = model(batches[0].forward.ids, batches[0].backward.ids, None)
    assert not any(part.requires_grad for part in state)
    assert all(part.abs().max() > 0 for part in state)
    carried = model(batches[1].forward.ids, batches[1].backward.ids, state)
    fresh = model(batches[1].forward.ids, batches[1].backward.ids, None)
    assert not torch.allclose(carried[0], fresh[0])
    assert not torch.allclose(carried[1], fresh[1])
    sides = ((batches[0].forward.ids, batches[1].forward.ids), (batches[0].backward.ids, batches[1].backward.ids))
    long = [torch.cat(pair, dim=1) for pair in sides]
    whole = model(*long, None)
    for way, first in enumerate((forward, backward)):
        halves = torch.cat([first.view(3, 5, -1), carried[way].view(3, 5, -1)], dim=1)
        torch.testing.assert_close(halves, whole[way].view(3, 10, -1))


def test_every_direction_and_step_draws_a_sample_of_its_own(monkeypatch):
    drawn = []

    def recording(*args, **kwargs):
        drawn.append((kwargs["seed"], kwargs["offset"]))
        return log_uniform_sample(*args, **kwargs)

    monkeypatch.setattr(step_module, "log_uniform_sample", recording)
    model, batches = setting()
    optimiser = AdaGrad(model.parameters())
    for number, batch in enumerate(batches):
        step(model, optimiser, batch, None, number)
    assert len(drawn) == 6
    assert len(set(drawn)) == 6


def test_dropout_falls_while_training_only():
    model, batches = setting()
    model.bilm.options = toy_model(toy_config(dropout=0.5), toy_corpus()).bilm.options
    ids = (batches[0].forward.ids, batches[0].backward.ids)
    assert not torch.equal(model.train()(*ids, None)[0], model(*ids, None)[0])
    assert (model(*ids, None)[0] == 0).float().mean() > 0.3
    assert torch.equal(model.eval()(*ids, None)[0], model(*ids, None)[0])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bit_operands_change_the_loss_a_little(precision):
    exact, batches = setting(torch.float32)
    rounded, _ = setting(torch.float32, precision=precision)
    rounded.load_state_dict(exact.state_dict())
    losses = [step(m, AdaGrad(m.parameters()), batches[0], None, 0).forward for m in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)


def test_losses_that_are_tensors_are_reported_alike():
    """A GPU's losses stay tensors until a report, which then says what it says of numbers."""
    reports = []
    for kind in (float, torch.tensor):
        progress = Progress(10, None, 4)
        for number in (1.5, 2.5):
            progress.add(StepResult(kind(number), kind(number + 2.0), kind(7.0), None))
        row = progress.report()
        json.dumps(row)
        reports.append([row[name] for name in ("step", "loss", "loss_forward", "loss_backward", "gradient_norm")])
    assert reports[0] == reports[1] == [2, 3.0, 2.0, 4.0, 7.0]
