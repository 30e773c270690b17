"""negative_sampling: the loss by hand, gradients dense and sparse, chunks, precisions, on every backend."""

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_fast.ops import _dispatch, alias_sample, alias_table, negative_sampling
from tests.ops.exact import assert_exactly, exact
from tests.ops.output_layer import (
    SOME_IDS,
    SampledLayer,
    alone,
    check_no_word_leaves_the_table,
    every,
    needs_native,
)


def problem(count=7, width=6, words=40, dtype=torch.float64, noise=False):
    """Arguments of a call: some targets among the samples, some samples twice."""
    hidden, weight, bias = (torch.randn(size, dtype=dtype) for size in ((count, width), (words, width), (words,)))
    weights, samples = 1.0 / torch.arange(1, words + 1), max(1, words // 3)
    ids = alias_sample(samples, alias_table(weights.cpu(), power=0.75), seed=3, device=torch.get_default_device())
    targets = torch.randint(0, words, (count,))
    targets[: count // 2] = ids[torch.randint(0, samples, (count // 2,))]
    log_noise = (weights**0.75 / (weights**0.75).sum()).log().to(dtype) if noise else None
    return {
        "hidden": hidden, "targets": targets, "weight": weight, "bias": bias, "samples": ids, "negatives": 5,
        "log_noise": log_noise,
    }  # fmt: skip


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def by_hand(hidden, targets, weight, bias, samples, *, negatives, log_noise):
    """The formula, one row and one word at a time, in Python floats."""
    losses = []

    def score(h, k):
        noise = 0.0 if log_noise is None else math.log(negatives) + float(log_noise[k])
        return math.fsum(a * b for a, b in zip(h, weight[k].tolist(), strict=True)) + float(bias[k]) - noise

    for h, t in zip(hidden.tolist(), targets.tolist(), strict=True):
        others = [softplus(score(h, s)) for s in samples.tolist() if log_noise is not None or s != t]
        losses.append(softplus(-score(h, t)) + negatives / len(samples) * math.fsum(others))
    return torch.tensor(losses, dtype=torch.float64)


class TestWord2vec(SampledLayer):
    """Hits left out, and repeated samples."""

    loss, problem, by_hand = staticmethod(negative_sampling), staticmethod(problem), staticmethod(by_hand)
    cases = SampledLayer.cases | {
        "one sample": lambda arguments: {"samples": torch.tensor([5])},
        "one word sampled": lambda arguments: {"samples": torch.full((10,), 3)},
    }
    refusals = [
        *SampledLayer.refusals,
        ({"log_noise": torch.zeros(8)}, r"log_noise must have shape \[V=9\]"),
        ({"log_noise": torch.zeros(9).double()}, "hidden and log_noise must share"),
        ({"negatives": 0}, "negatives must be above 0 and finite; got 0.0"),
        ({"negatives": math.inf}, "got inf"),
    ]


class TestNoiseContrastiveEstimation(TestWord2vec):
    """Hits counted, and the law of the noise."""

    problem = staticmethod(functools.partial(problem, noise=True))


@every
def test_a_sample_for_each_row_is_word2vecs_own(backend):
    """K = S without a bias: -ln σ(h · w_t) - sum_k ln σ(-h · w_k), in torch's words."""
    hidden, targets, weight, bias, samples, *_ = problem(1, dtype=exact(backend)).values()
    targets, bias = torch.tensor([39]), torch.zeros_like(bias)
    expected = -(hidden[0] @ weight[39]).sigmoid().log() - (-(weight[samples] @ hidden[0])).sigmoid().log().sum()
    actual = negative_sampling(hidden, targets, weight, bias, samples, backend=backend)
    assert_exactly("loss", actual, expected[None], backend)


@every
def test_every_score_keeps_its_digits(backend):
    """Small losses of samples far from the target do not vanish next to 1, large ones do not overflow; slopes too."""
    scores = [-60.0, -20.0, -14.0, -3.0, 0.0, 3.0, 20.0, 80.0, 1000.0]
    hidden, samples = torch.tensor(scores)[:, None].requires_grad_(), torch.ones(4099, dtype=torch.long)
    weight, bias = torch.tensor([[0.0], [1.0]]), torch.tensor([200.0, 0.0])
    losses = negative_sampling(hidden, torch.zeros(9, dtype=torch.long), weight, bias, samples, backend=backend)
    (slopes,) = torch.autograd.grad(losses.sum(), hidden)
    assert losses.tolist() == pytest.approx([4099 * softplus(score) for score in scores], rel=1e-4)
    expected = [4099 / (1 + math.exp(min(-score, 700))) for score in scores]
    assert slopes[:, 0].tolist() == pytest.approx(expected, rel=1e-4)


@needs_native
@pytest.mark.parametrize("chunk_bytes", [1000, 32 << 20])
def test_gradients_of_offsets_over_many_rows_are_sums_of_sums(chunk_bytes):
    """Nearly equal terms, which one chain of additions rounds in one direction: its error grows as the rows do."""
    hidden, weight, targets = torch.randn(2000, 8) * 1e-3, torch.randn(34, 8) * 1e-3, torch.randint(34, (2000,))
    bias = torch.zeros(34)

    def gradient(dtype, backend):
        tensors = [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias)]
        losses = negative_sampling(
            tensors[0], targets, *tensors[1:], torch.arange(30), negatives=5, backend=backend, chunk_bytes=chunk_bytes
        )
        return torch.autograd.grad(losses.sum(), tensors[2])[0].double()

    expected = gradient(torch.float64, "reference")
    assert (gradient(torch.float32, "native") - expected).abs().max() <= 5e-7 * expected.max()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter, of the NaNs that are expected
@alone
@settings(max_examples=12, deadline=None)
@given(targets=SOME_IDS, samples=SOME_IDS, noise=st.booleans())
def test_no_word_leaves_the_table(backend, targets, samples, noise):
    run = _dispatch.registered_op("negative_sampling", backend)

    def call(*arguments):
        law = arguments[3] if noise else None
        return run(*arguments, law, 5.0, True, 2**20, "float32", True)[0]

    check_no_word_leaves_the_table(call, targets, samples)
