"""The losses as modules: formulas in float64, evaluation, gradients as rows, samples, state, refusals."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from elmo_fast import (
    FullSoftmaxLoss,
    HierarchicalSoftmaxLoss,
    NegativeSamplingLoss,
    SampledSoftmaxLoss,
    clip_grad_norm_,
    ops,
)
from elmo_fast._runtime.threads import torch_threads
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.losses import LOSS_CLASSES
from elmo_fast.ops import sampled_softmax

SAMPLED = [3, 10, 20, 55, 99]
WORDS, WIDTH, SAMPLES = 60, 8, 12
COUNTS = torch.arange(WORDS).flip(0) ** 2


def made(kind, **more):
    """A loss with a random bias."""
    arguments = {
        SampledSoftmaxLoss: (SAMPLES,), NegativeSamplingLoss: (SAMPLES, COUNTS), HierarchicalSoftmaxLoss: (COUNTS,),
    }  # fmt: skip
    loss = kind(WORDS, WIDTH, *arguments.get(kind, ()), **more)
    torch.nn.init.normal_(loss.softmax_b.weight if more.get("sparse") else loss.softmax_b)
    return loss


def inputs(rows=30):
    return torch.randn(rows, WIDTH), torch.randint(0, WORDS - 1, (rows,))


def whole(loss, hidden, offset=0.0):
    """ln p of every word under a plain softmax of the table, [N, V] float64."""
    scores = hidden.double() @ loss.softmax_w.double().t() + loss.softmax_b.double() + offset
    return scores.log_softmax(1)


def test_full_softmax_is_cross_entropy_and_evaluates_sampled_softmax():
    loss, (hidden, targets) = made(FullSoftmaxLoss), inputs()
    expected = F.nll_loss(whole(loss, hidden), targets, reduction="sum").item()
    assert loss(hidden, targets).item() == pytest.approx(expected, rel=1e-6)
    assert loss.eval()(hidden, targets).item() == pytest.approx(expected, rel=1e-6)
    sampled = SampledSoftmaxLoss(WORDS, WIDTH, 5).eval()
    sampled.load_state_dict(loss.state_dict())
    assert sampled(hidden, targets).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("negatives", [None, 3.0])
def test_negative_sampling_is_the_op_over_the_words_drawn(sparse, negatives):
    """Sampled by counts^0.75, seeded by torch."""
    loss, (hidden, targets) = made(NegativeSamplingLoss, sparse=sparse, negatives=negatives), inputs()
    torch.manual_seed(1)
    actual = loss(hidden, targets).item()
    torch.manual_seed(1)
    seed, offset = torch.randint(2**62, (2,)).tolist()
    samples = ops.alias_sample(SAMPLES, ops.alias_table(COUNTS.clamp(min=1), power=0.75), seed=seed, offset=offset)
    w = (loss.softmax_w.weight if sparse else loss.softmax_w).double()
    b = (loss.softmax_b.weight.squeeze(1) if sparse else loss.softmax_b).double()
    how = {"negatives": negatives, "backend": "reference"}
    assert actual == pytest.approx(
        ops.negative_sampling(hidden.double(), targets, w, b, samples, **how).sum().item(), rel=1e-5
    )


def test_the_sum_of_many_losses_does_not_depend_on_threads():
    loss, hidden = FullSoftmaxLoss(5, 2), torch.randn(100_000, 2)
    targets, sums = torch.arange(100_000) % 5, []
    for training in (True, False):
        for threads in (1, 2, 3, 5):
            with torch_threads(threads), torch.no_grad():
                sums.append(loss.train(training)(hidden, targets))
    assert len({float(each) for each in sums}) == 1


@pytest.mark.parametrize("kind", [NegativeSamplingLoss, HierarchicalSoftmaxLoss])
def test_a_state_dict_brings_its_counts_and_what_is_made_of_them(kind):
    loss, (hidden, targets) = made(kind).eval(), inputs()
    arguments = (SAMPLES, COUNTS.flip(0)) if kind is NegativeSamplingLoss else (COUNTS.flip(0),)
    other = kind(WORDS, WIDTH, *arguments).eval()
    other(hidden, targets)  # made of its own counts
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other(hidden, targets), loss(hidden, targets))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("semantics", "tries"), [("allennlp", 5), ("tensorflow", 12), ("tensorflow", 5)])
def test_the_sampled_loss_is_the_op(sparse, semantics, tries):
    """Summed over the batch, by the definition in float64."""
    loss = SampledSoftmaxLoss(100, 8, 5, sparse, semantics=semantics)
    loss.choice_func = lambda num_words, num_samples: (np.array(SAMPLED), tries)
    w = loss.softmax_w.weight if sparse else loss.softmax_w
    b = loss.softmax_b.weight if sparse else loss.softmax_b
    torch.nn.init.normal_(b)
    hidden, targets = torch.randn(40, 8), torch.randint(0, 100, (40,))
    targets[:3] = torch.tensor(SAMPLED[:3])

    table, how = (w.double(), b.double().reshape(-1)), {"correction": semantics, "backend": "reference"}
    total = sampled_softmax(hidden.double(), targets, *table, torch.tensor(SAMPLED), tries, **how).sum().item()
    assert loss(hidden, targets).item() == pytest.approx(total, rel=1e-5)


def test_whole_softmax_when_not_training():
    """In blocks where the logits would be large."""
    loss = SampledSoftmaxLoss(100, 8, 5).eval()
    torch.nn.init.normal_(loss.softmax_b)
    hidden, targets = torch.randn(40, 8), torch.randint(0, 100, (40,))
    expected = F.nll_loss(F.log_softmax(hidden @ loss.softmax_w.t() + loss.softmax_b, -1), targets, reduction="sum")
    many, words = hidden.repeat(3000, 1), targets.repeat(3000)
    assert len(many) * 100 * 4 > 32 * 2**20
    assert loss(many, words).item() == pytest.approx(3000 * expected.item(), rel=1e-5)


def test_tries_may_be_a_tensor_that_nobody_reads():
    """A sampler on the device gives tensors: the same loss, and on meta no number can be taken out of one."""
    loss, hidden, targets, losses = SampledSoftmaxLoss(100, 8, 5), torch.randn(40, 8), torch.randint(0, 100, (40,)), []
    for sample in ((np.array(SAMPLED), np.int64(12)), (torch.tensor(SAMPLED), torch.tensor(12))):
        loss.choice_func = lambda num_words, num_samples, sample=sample: sample
        losses.append(loss(hidden, targets).item())
    assert losses[0] == losses[1]
    loss.choice_func = lambda num_words, num_samples: [each.to("meta") for each in sample]
    assert loss.to("meta")(hidden.to("meta"), targets.to("meta")).is_meta


@pytest.mark.parametrize("kind", LOSS_CLASSES.values())
def test_an_empty_batch_loses_nothing(kind):
    assert made(kind)(torch.zeros(0, WIDTH), torch.zeros(0, dtype=torch.int64)).item() == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SampledSoftmaxLoss(100, 8, 101), "num_samples must be from 1 to num_words=100; got 101"),
        (lambda: SampledSoftmaxLoss(100, 8, 5, semantics="keras"), "semantics must be one of"),
        (lambda: SampledSoftmaxLoss(100, 8, 5)(torch.zeros(1, 8), torch.tensor([100])), "targets"),
        (lambda: HierarchicalSoftmaxLoss(9, 4, COUNTS), r"counts must say .* num_words=9 .*got shape \(60,\)"),
        (lambda: HierarchicalSoftmaxLoss(1, 4, COUNTS[:1]), "num_words must be 2 or more"),
        (lambda: NegativeSamplingLoss(2, 4, 5, torch.tensor([3, -1])), r"got shape \(2,\) from -1 up"),
        (lambda: NegativeSamplingLoss(2, 4, 5, None), r"counts must .*got shape \(0,\)"),
        (
            lambda: NegativeSamplingLoss(WORDS, 4, 5, COUNTS, negatives=0),
            "negatives must be above 0 and finite, or None",
        ),
    ],
)
def test_what_cannot_be_is_said(make, message):
    with pytest.raises(ElmoFastError, match=message):
        make()


def test_losses_that_do_not_sample_compile_to_one_graph():
    """The tree is built by the first call."""
    hidden, targets = torch.randn(6, 8), torch.randint(0, 30, (6,))
    for loss in (HierarchicalSoftmaxLoss(30, 8, counts=torch.arange(30, 0, -1)), FullSoftmaxLoss(30, 8)):
        expected = loss(hidden, targets)
        assert torch.equal(torch.compile(loss, fullgraph=True, backend="aot_eager")(hidden, targets), expected)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", LOSS_CLASSES.values())
def test_reductions_ignored_targets_and_leading_dimensions(kind, training):
    """As torch's cross_entropy has them: an ignored target has no loss, no gradient, and no part in a mean."""
    hidden, targets = torch.randn(2, 15, WIDTH, requires_grad=True), torch.randint(0, WORDS - 1, (2, 15))
    targets[0, :4] = -100
    kept, results = targets != -100, {}
    loss = made(kind).train(training)
    for loss.reduction in ("none", "sum", "mean"):
        torch.manual_seed(1)
        results[loss.reduction] = loss(hidden, targets)
    torch.manual_seed(1)
    alone = loss(hidden[kept], targets[kept])
    assert results["none"].shape == (2, 15)
    assert not results["none"][~kept].any()
    torch.testing.assert_close(results["none"].sum(), results["sum"])
    torch.testing.assert_close(results["sum"] / kept.sum(), results["mean"])
    torch.testing.assert_close(alone, results["mean"])
    gradient = torch.autograd.grad(results["mean"], hidden)[0]
    assert not gradient[~kept].any()
    assert gradient[kept].any(dim=1).all()


@pytest.mark.parametrize("kind", LOSS_CLASSES.values())
def test_tables_begin_where_they_are_wanted(kind):
    loss = made(kind, device="meta", dtype=torch.float64)
    assert {(each.device.type, each.dtype) for each in loss.parameters()} == {("meta", torch.float64)}
    assert all(each.is_meta for each in loss.buffers())


def test_targets_of_another_shape_and_unknown_reductions_are_named():
    loss = made(FullSoftmaxLoss)
    with pytest.raises(ElmoFastError, match=r"targets must have the shape .* got \[30, 1\] and \[30, 8\]"):
        loss(torch.randn(30, WIDTH), torch.zeros(30, 1, dtype=torch.int64))
    with pytest.raises(ElmoFastError, match="reduction"):
        made(FullSoftmaxLoss, reduction="avg")


@pytest.mark.parametrize("norm_type", [2.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_the_norm_of_sparse_gradients_is_clipped(max_norm, norm_type):
    """To what torch makes of the same gradients where they are dense."""
    norms, gradients = [], []
    for sparse, clip in ((True, clip_grad_norm_), (False, torch.nn.utils.clip_grad_norm_)):
        torch.manual_seed(0)
        loss = made(SampledSoftmaxLoss, sparse=sparse)
        table = torch.nn.Embedding(5, WIDTH, sparse=sparse)  # its gradient has the rows of a repeated word one by one
        loss(table(torch.tensor([1, 1, 4, 1])), torch.tensor([0, 3, 3, 2])).backward()
        trained = [*table.parameters(), *loss.parameters()]
        norms.append(clip(trained, max_norm, norm_type))
        gradients.append([each.grad.to_dense().flatten() for each in trained])
    torch.testing.assert_close(norms[0], norms[1])
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected)
