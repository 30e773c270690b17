"""The sampled softmax loss as a module: formula, whole softmax when not training, sparse gradients, sampler."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules import SampledSoftmaxLoss
from elmo_fast.modules.losses import log_uniform_choice
from elmo_fast.ops import sampled_softmax

SAMPLES = [3, 10, 20, 55, 99]


def inputs(rows=40, words=100):
    return torch.randn(rows, 8), torch.randint(0, words, (rows,))


def test_names_and_initialisation():
    loss = SampledSoftmaxLoss(5000, 16, 20)
    assert {n: tuple(p.shape) for n, p in loss.named_parameters()} == {"softmax_w": (5000, 16), "softmax_b": (5000,)}
    assert abs(loss.softmax_w.std().item() - 16**-0.5) < 0.01
    assert not loss.softmax_b.any()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("semantics", "tries"), [("allennlp", 5), ("tensorflow", 12), ("tensorflow", 5)])
def test_the_sampled_loss_is_the_op(sparse, semantics, tries):
    """Summed over the batch, by the definition in float64."""
    loss = SampledSoftmaxLoss(100, 8, 5, sparse, semantics=semantics)
    loss.choice_func = lambda num_words, num_samples: (np.array(SAMPLES), tries)
    w = loss.softmax_w.weight if sparse else loss.softmax_w
    b = loss.softmax_b.weight if sparse else loss.softmax_b
    torch.nn.init.normal_(b)
    hidden, targets = inputs()
    targets[:3] = torch.tensor(SAMPLES[:3])

    table, how = (w.double(), b.double().reshape(-1)), {"correction": semantics, "backend": "reference"}
    total = sampled_softmax(hidden.double(), targets, *table, torch.tensor(SAMPLES), tries, **how).sum().item()
    assert loss(hidden, targets).item() == pytest.approx(total, rel=1e-5)


def test_tries_may_be_a_tensor_that_nobody_reads(monkeypatch):
    """A sampler on the device gives tensors: the same loss, and the module takes no number out of one."""
    loss, (hidden, targets), losses = SampledSoftmaxLoss(100, 8, 5), inputs(), []
    for ids, tries in ((np.array(SAMPLES), np.int64(12)), (torch.tensor(SAMPLES), torch.tensor(12))):
        loss.choice_func = lambda num_words, num_samples, drawn=(ids, tries): drawn
        given = []

        def recording(*arguments, **options):
            given.append(arguments[5])  # noqa: B023
            return sampled_softmax(*arguments, **options)

        monkeypatch.setattr(ops, "sampled_softmax", recording)
        losses.append(loss(hidden, targets).item())
        assert given[0] is tries if isinstance(tries, torch.Tensor) else given == [12]
    assert losses[0] == losses[1]


def test_whole_softmax_when_not_training():
    """To the last bit what log_softmax and nll_loss give; in blocks, nearly so, where the logits would be large."""
    loss = SampledSoftmaxLoss(100, 8, 5).eval()
    torch.nn.init.normal_(loss.softmax_b)
    hidden, targets = inputs()
    wanted = F.nll_loss(F.log_softmax(hidden @ loss.softmax_w.t() + loss.softmax_b, -1), targets, reduction="sum")
    assert torch.equal(loss(hidden, targets), wanted)
    many, words = hidden.repeat(3000, 1), targets.repeat(3000)
    assert len(many) * 100 * 4 > 32 * 2**20
    assert loss(many, words).item() == pytest.approx(3000 * wanted.item(), rel=1e-5)


def test_the_sampler_draws_distinct_words_by_torchs_seed():
    torch.manual_seed(1)
    ids, tries = log_uniform_choice(1000, 50)
    assert len(set(ids.tolist())) == 50
    assert 0 <= ids.min() <= ids.max() < 1000
    assert tries >= 50
    other, _ = log_uniform_choice(1000, 50)
    assert ids.tolist() != other.tolist()
    torch.manual_seed(1)
    assert log_uniform_choice(1000, 50)[0].tolist() == ids.tolist()


def test_no_rows_and_refusals():
    loss = SampledSoftmaxLoss(100, 8, 5)
    assert loss(torch.zeros(0, 8), torch.zeros(0).long()).item() == 0
    with pytest.raises(ElmoFastError, match="num_samples must be from 1 to num_words=100; got 101"):
        SampledSoftmaxLoss(100, 8, 101)
    with pytest.raises(ElmoFastError, match="semantics must be one of"):
        SampledSoftmaxLoss(100, 8, 5, semantics="keras")
    with pytest.raises(ElmoFastError, match="targets"):
        loss(torch.zeros(1, 8), torch.tensor([100]))


def test_a_backend_that_only_some_ops_have_is_named_where_it_is():
    """backend="native" trains and evaluates in C++; a name that an op does not have means "auto" there."""
    assert ops.backend_for("alias_sample", "triton") == "auto"
    assert ops.backend_for("full_softmax", "native") == "native"
    assert ops.backend_for("sampled_softmax", "native") == "native"
    loss = SampledSoftmaxLoss(20, 6, 5, backend="native").eval()
    assert torch.isfinite(loss(torch.randn(3, 6), torch.tensor([1, 2, 3])))
