"""full_softmax: the whole vocabulary's loss by blocks, against torch's cross entropy in float64."""

import pytest
import torch
from torch.nn import functional

from elmo_fast.ops import _dispatch, full_softmax, sampled_softmax, vocabulary_losses
from tests.ops.output_layer import OutputLayer, doubles, every, kernels, needs_native
from tests.support.tolerances import assert_close, assert_no_worse


def problem(count=7, width=6, words=40, dtype=torch.float64):
    """Arguments of a call."""
    hidden, weight, bias = (torch.randn(size, dtype=dtype) for size in ((count, width), (words, width), (words,)))
    return {"hidden": hidden, "targets": torch.randint(0, words, (count,)), "weight": weight, "bias": bias}


def whole(hidden, targets, weight, bias):
    return functional.cross_entropy(hidden @ weight.T + bias, targets, reduction="none")


def in_double(hidden, targets, weight, bias):
    """`whole` in float64."""
    return whole(hidden.double(), targets, weight.double(), bias.double())


class TestFullSoftmax(OutputLayer):
    """Against torch's cross entropy; blocks of rows and of words."""

    loss, problem, by_hand = staticmethod(full_softmax), staticmethod(problem), staticmethod(in_double)
    shapes = [(1, 1, 1), (3, 5, 9), (129, 33, 1001), (7, 64, 200), (0, 4, 9)]
    large = (150, 33, 401)
    ways = [{"chunk_bytes": 40_000}, {"chunk_bytes": 2**25}]
    test_sparse_gradients_are_the_dense_ones = None  # all words are used
    refusals = [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8"),
        ({"weight": torch.zeros(0, 3), "bias": torch.zeros(0)}, "at least one word"),
        ({"bias": torch.zeros(8)}, r"bias must have shape \[V=9\]"),
        ({"targets": torch.zeros(2)}, "targets must be int64"),
        ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
    ]


def test_more_rows_than_a_block_of_them(monkeypatch):
    """Rows are cut too: blocks of 4 rows and of 3 words."""
    monkeypatch.setattr(vocabulary_losses, "ROWS", 4)
    arguments = problem(11)
    actual = full_softmax(**arguments, chunk_bytes=4 * 3 * 8, backend="reference")
    assert_close("losses", actual, whole(**arguments), "float64")


@pytest.mark.parametrize("size", [2.0**20, -(2.0**20), 3e7])
@pytest.mark.parametrize("loss", [full_softmax, sampled_softmax])
@kernels
def test_gradients_with_biases_of_a_million_sum_to_zero(backend, loss, size):
    """The log-sum of logits near 1e6 has sixteenths in float32: p = exp(logit - log-sum) would be off by as much."""
    bias = (size + torch.arange(40) % 8 * (0.0625 if abs(size) < 1e7 else 2.0)).requires_grad_()
    arguments = {
        "hidden": torch.zeros(3, 6),
        "targets": torch.tensor([0, 5, 11]),
        "weight": torch.randn(40, 6),
        "bias": bias,
    }
    if loss is sampled_softmax:
        arguments |= {"samples": torch.arange(12, 40), "tries": 28}
    (actual,) = torch.autograd.grad(loss(**arguments, backend=backend).sum(), [bias])
    assert abs(actual.double().sum()) < 3e-6
    if loss is full_softmax:
        double = bias.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(whole(**doubled(arguments) | {"bias": double}).sum(), [double])
        torch.testing.assert_close(actual.double(), expected, rtol=3e-6, atol=1e-7)


def doubled(arguments):
    return {name: x.double() if x.is_floating_point() else x for name, x in arguments.items()}


@kernels
def test_a_small_loss_keeps_its_digits(backend):
    """A target 60 ahead of the only other word: the loss is e^-60, and so is the gradient to its bias."""
    hidden, weight, bias = torch.ones(1, 1), torch.tensor([[60.0], [0.0]]), torch.zeros(2, requires_grad=True)
    loss = full_softmax(hidden, torch.tensor([0]), weight, bias, backend=backend)
    (gradient,) = torch.autograd.grad(loss.sum(), bias)
    assert loss.item() == pytest.approx(8.75651076e-27, rel=1e-4)
    assert gradient.tolist() == pytest.approx([-8.75651076e-27, 8.75651076e-27], rel=1e-4)


@kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaN that is expected
def test_no_target_leaves_the_table(backend):
    """Off the CPU nothing is checked: a word outside has a NaN loss, reads no memory of others, and spares its rows.

    On the CPU, where the public function has looked, the kernel raises all the same.
    """
    around = torch.full((30, 4), torch.nan)
    around[10:20] = torch.linspace(-1, 1, 40).view(10, 4)
    table, edge = around[10:20], torch.zeros(10)
    targets = torch.tensor([0, 9, 10, -1, 2**63 - 1, -(2**63), 2**32 + 3])
    run = _dispatch.registered_op("full_softmax", backend)
    if backend == "native":
        for outside in targets[2:]:
            with pytest.raises(IndexError):
                run(torch.ones(1, 4), outside[None], table, edge, "float32", 2**20, False)
        return
    losses, _ = run(torch.ones(7, 4), targets, table, edge, "float32", 2**20, False)
    assert losses.isfinite().tolist() == [True, True] + [False] * 5


@every
def test_large_logits_do_not_overflow(backend):
    """Logits of 1e4 in one block and -1e4 in another."""
    hidden, targets = torch.ones(2, 1), torch.tensor([0, 3])
    weight, bias = torch.tensor([[1e4], [1e4], [-1e4], [9999.0]]), torch.zeros(4)
    actual = full_softmax(hidden, targets, weight, bias, chunk_bytes=8, backend=backend)
    truth = in_double(hidden, targets, weight, bias)
    assert_no_worse("losses", actual, whole(hidden, targets, weight, bias), truth, "float32")


@doubles
@pytest.mark.parametrize("words", [2, 40])
def test_a_table_of_nan_but_for_the_target_is_nan(backend, words):
    """No comparison finds NaN: a block whose largest logit is sought must not pass for one without any."""
    hidden, targets, weight, bias = problem(words=words).values()
    targets.zero_()
    weight[1:] = torch.nan
    for chunk_bytes in (8 * words, 1):
        losses = full_softmax(hidden, targets, weight, bias, backend=backend, chunk_bytes=chunk_bytes)
        assert losses.isnan().all()


@needs_native
def test_the_logits_that_are_held_stay_within_chunk_bytes():
    """All 64 x 20,000 of them would take 5 MB."""
    arguments = problem(64, 4, 20_000, dtype=torch.float32)
    with torch.autograd.profiler.profile(profile_memory=True) as actual:
        full_softmax(**arguments, chunk_bytes=10_000, backend="native")
    assert 0 < max(event.self_cpu_memory_usage for event in actual.function_events) <= 20_000
