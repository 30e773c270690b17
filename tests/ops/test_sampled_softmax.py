"""sampled_softmax: the loss by hand, gradients dense and sparse, chunks, precisions, on every backend."""

import math

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    _dispatch,
    _native,
    coalesced,
    expected_counts,
    full_softmax,
    log_uniform_sample,
    sampled_softmax,
)  # fmt: skip
from tests.backends import backends, device_of
from tests.ops.derivatives import check_second_derivative, dense_of
from tests.ops.exact import assert_exactly, exact
from tests.threads import with_one_and_two
from tests.tolerances import assert_close, assert_no_worse

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
kernels = pytest.mark.parametrize("backend", backends("sampled_softmax"))
every = pytest.mark.parametrize("backend", backends("sampled_softmax", reference=True))
doubles = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])
SHAPES = [(1, 1, 1, 2), (3, 5, 4, 9), (129, 33, 65, 200), (7, 64, 130, 500)]  # N, D, S, V


def draw(samples, words, seed):
    """log_uniform_sample, on the device of the test."""
    return [x.to(torch.get_default_device()) for x in log_uniform_sample(samples, words, seed=seed)]


def problem(count=7, width=6, samples=10, words=40, dtype=torch.float64, grad=False):
    hidden, weight, bias = torch.randn(count, width), torch.randn(words, width), torch.randn(words)
    ids, tries = draw(samples, words, 3)
    targets = torch.randint(0, words, (count,))
    targets[: count // 2] = ids[torch.randint(0, samples, (count // 2,))]
    leaves = [x.to(dtype).requires_grad_(grad) for x in (hidden, weight, bias)]
    return *leaves, targets, ids, tries


def by_hand(hidden, weight, bias, targets, samples, tries):
    """The formula, one row and one word at a time, in Python floats."""
    log_v, losses = math.log(len(weight) + 1), []

    def logit(h, k):
        p = math.log((k + 2) / (k + 1)) / log_v
        repeated = int(tries) != len(samples)
        q = -math.expm1(int(tries) * math.log1p(-p)) if repeated else p * len(samples)
        return math.fsum(a * b for a, b in zip(h, weight[k].tolist(), strict=True)) + float(bias[k]) - math.log(q)

    for h, t in zip(hidden.tolist(), targets.tolist(), strict=True):
        logits = [logit(h, t)] + [logit(h, s) for s in samples.tolist() if s != t]
        top = max(logits)
        losses.append(top + math.log(math.fsum(math.exp(x - top) for x in logits)) - logits[0])
    return torch.tensor(losses, dtype=torch.float64)


@every
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_by_hand(backend, shape):
    """Every term of the formula: biases, expected counts, accidental hits left out."""
    hidden, weight, bias, targets, samples, tries = problem(*shape, dtype=exact(backend))
    found = sampled_softmax(hidden, targets, weight, bias, samples, tries, backend=backend)
    assert_exactly("losses", found, by_hand(hidden, weight, bias, targets, samples, tries), backend)


@every
def test_no_repeated_draw_takes_the_shortcut(backend):
    """tries == S: expected counts p S, as TensorFlow's."""
    hidden, weight, bias, targets, samples, _ = problem(dtype=exact(backend))
    found = sampled_softmax(hidden, targets, weight, bias, samples, len(samples), backend=backend)
    assert_exactly("losses", found, by_hand(hidden, weight, bias, targets, samples, len(samples)), backend)


@every
def test_a_target_that_is_the_only_sample_costs_nothing(backend):
    """With its accidental hit left out no other word remains: loss and gradients are zero."""
    hidden, weight, bias, *_ = problem(grad=True, dtype=exact(backend))
    targets = torch.full((7,), 4)
    loss = sampled_softmax(hidden, targets, weight, bias, torch.tensor([4]), 3, backend=backend)
    assert torch.equal(loss, torch.zeros(7, dtype=exact(backend)))
    for gradient in torch.autograd.grad(loss.sum(), (hidden, weight, bias)):
        assert not gradient.any()


@pytest.mark.parametrize("correction", ["allennlp", "allennlp-0.9"])
@every
def test_allennlps_loss(backend, correction):
    """AllenNLP's own formula in plain torch (hits set to -10000, a term inside the logarithm, no shortcut)."""
    hidden, weight, bias, targets, samples, tries = problem(dtype=torch.float32)
    term = {"allennlp": 1e-13, "allennlp-0.9": 1e-7}[correction]
    for t in (tries, torch.tensor(len(samples))):
        logs = [torch.log(expected_counts(k, t, 10, 40, correction=correction) + term) for k in (targets, samples)]
        true = (hidden * weight[targets]).sum(1) + bias[targets] - logs[0]
        others = hidden @ weight[samples].T + bias[samples] - logs[1]
        others = others.masked_fill(samples == targets[:, None], -10000.0)
        wanted = -torch.cat([true[:, None], others], 1).log_softmax(1)[:, 0]
        found = sampled_softmax(hidden, targets, weight, bias, samples, t, correction=correction, backend=backend)
        assert_close("losses", found, wanted)


@every
@pytest.mark.parametrize(("correction", "log_q"), [("allennlp", math.log(1e-13)), ("allennlp-0.9", math.log(1e-7))])
def test_a_word_so_rare_that_its_count_rounds_to_nothing(backend, correction, log_q):
    """k = 2 mod 4 above 2^24: (k + 2) / (k + 1) is 1 in float32, the count 0; the term alone is in the logarithm."""
    words = 20_000_000
    weight, bias = torch.zeros(1, 1).expand(words, 1), torch.zeros(1).expand(words)
    targets, samples = torch.tensor([0, words - 6]), torch.tensor([words - 2])
    options = {"correction": correction, "backend": backend}
    found = sampled_softmax(torch.zeros(2, 1), targets, weight, bias, samples, 40, **options)
    common = math.log(-math.expm1(40 * math.log1p(-math.log(2) / math.log(words + 1))))
    truth = torch.tensor([math.log1p(math.exp(common - log_q)), math.log(2)])
    assert_close("losses", found, truth)


@every
def test_equals_the_full_softmax_when_other_words_are_biased_out(backend):
    """Every word that was not drawn has bias -1000, every other +ln Q: the sampled sum is then the whole sum."""
    hidden, weight, _, targets, samples, tries = problem(samples=12, dtype=exact(backend))
    log_q = expected_counts(torch.arange(40), tries, 12, 40).log().to(exact(backend))
    targets = samples[torch.randint(0, 12, (7,))]
    drawn = torch.full((40,), -1000.0, dtype=exact(backend))
    drawn[samples] = 0.0
    found = sampled_softmax(hidden, targets, weight, drawn + log_q, samples, tries, backend=backend)
    assert_exactly("losses", found, full_softmax(hidden, targets, weight, drawn, backend="reference"), backend)


@doubles
@pytest.mark.parametrize("chunk_bytes", [1, 8 * 10 * 3, 2**25])
def test_gradcheck(backend, chunk_bytes):
    """Gradients to hidden, table and bias; one row a chunk, three, all; kept probabilities and computed again."""
    hidden, weight, bias, targets, samples, tries = problem(grad=True)

    def f(hidden, weight, bias):
        options = {"chunk_bytes": chunk_bytes, "backend": backend}
        return sampled_softmax(hidden, targets, weight, bias, samples, tries, **options)

    assert torch.autograd.gradcheck(f, (hidden, weight, bias))


@every
@pytest.mark.parametrize(
    "case", ["mixed", "all targets equal", "all targets sampled", "one sample", "whole vocabulary"]
)
def test_sparse_gradients_are_the_dense_ones(backend, case):
    """Same numbers; indices are the distinct words used, in order, and the flag can be had without another sort."""
    hidden, weight, bias, targets, samples, tries = problem(grad=True, dtype=exact(backend))
    if case == "all targets equal":
        targets = torch.full_like(targets, 39)
    elif case == "all targets sampled":
        targets = samples[:7]
    elif case == "one sample":
        samples, tries = torch.tensor([5]), torch.tensor(1)
    elif case == "whole vocabulary":
        samples, tries = draw(40, 40, 0)
    gradients = []
    for sparse in (False, True):
        hidden.grad = weight.grad = bias.grad = None
        losses = sampled_softmax(hidden, targets, weight, bias, samples, tries, sparse=sparse, backend=backend)
        (losses * torch.arange(1.0, 8.0)).sum().backward()
        gradients.append((hidden.grad, weight.grad, bias.grad))
    for name, dense, sparse in zip(("hidden", "weight", "bias"), *gradients, strict=True):
        if name != "hidden":
            sparse = dense_of(sparse, torch.cat([targets, samples]))
        assert_exactly(name, sparse, dense, backend)


def test_sparse_gradients_are_coalesced_before_they_are_stored():
    """The table's gradient has sorted, distinct indices and the flag; two losses merge into one such."""
    hidden, weight, bias, targets, samples, tries = problem(grad=True)
    other, other_tries = log_uniform_sample(10, 40, seed=99)
    loss = sampled_softmax(hidden, targets, weight, bias, samples, tries, sparse=True).sum()
    assert torch.autograd.grad(loss, weight)[0].is_coalesced()
    loss = sampled_softmax(hidden, targets, weight, bias, samples, tries, sparse=True).sum()
    loss = loss + sampled_softmax(hidden, targets.flip(0), weight, bias, other, other_tries, sparse=True).sum()
    loss.backward()
    words = torch.cat([targets, samples, other]).unique()
    assert torch.equal(coalesced(weight.grad)._indices()[0], words)


def test_coalesced_merges_what_is_not():
    """Unsorted or repeated indices are merged, not just flagged."""
    for ids in ([2, 0, 1], [0, 1, 1]):
        mixed = torch.sparse_coo_tensor(torch.tensor([ids]), torch.ones(3, 2), (4, 2), check_invariants=True)
        merged = coalesced(mixed)
        assert merged.is_coalesced()
        assert merged._indices()[0].tolist() == sorted(set(ids))
        assert torch.equal(merged.to_dense(), mixed.to_dense())


@every
@pytest.mark.parametrize("count", [0, 1, 3, 129])
def test_row_counts(backend, count):
    """No row gives no loss and zero gradients; any other count agrees with its rows taken in pieces."""
    hidden, weight, bias, targets, samples, tries = problem(max(count, 1), grad=True, dtype=exact(backend))
    hidden_some, targets = hidden[:count], targets[:count]
    losses = sampled_softmax(hidden_some, targets, weight, bias, samples, tries, backend=backend)
    assert losses.shape == (count,)
    gradients = torch.autograd.grad(losses.sum(), (hidden, weight, bias))
    if count == 0:
        assert not any(g.any() for g in gradients)
        return
    pieces = [slice(0, 1), slice(1, 2), slice(2, 66), slice(66, 129)]
    single = [
        sampled_softmax(hidden[piece], targets[piece], weight, bias, samples, tries, backend=backend)
        for piece in pieces
        if piece.start < count
    ]
    assert_exactly("losses", losses, torch.cat(single), backend)
    apart = torch.autograd.grad(torch.cat(single).sum(), (hidden, weight, bias))
    for name, a, b in zip("hwb", gradients, apart, strict=True):
        assert_exactly(name, a, b, backend)


@every
def test_strided_views(backend):
    """Transposed hidden and table, every second target, sample and bias: losses and gradients."""
    hidden, weight, bias, targets, samples, tries = problem(dtype=exact(backend))
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    wanted = sampled_softmax(hidden, targets, weight, bias, samples, tries, backend=backend)
    wanted_gradients = torch.autograd.grad(wanted.square().sum(), leaves)
    views = [x.detach().mT.contiguous().mT.requires_grad_() for x in (hidden, weight)]
    second = [torch.stack([x, x], -1)[:, 0] for x in (targets, bias.detach(), samples)]
    second[1].requires_grad_()
    found = sampled_softmax(views[0], second[0], views[1], second[1], second[2], tries, backend=backend)
    assert_exactly("losses", found, wanted, backend)
    gradients = torch.autograd.grad(found.square().sum(), (*views, second[1]))
    for name, a, b in zip("hwb", gradients, wanted_gradients, strict=True):
        assert_exactly(name, a, b, backend)


def exact_gradients(hidden, weight, bias, targets, samples, tries, dtype, precision, backend, chunk_bytes=2**25):
    leaves = [x.detach().to(dtype).requires_grad_() for x in (hidden, weight, bias)]
    options = {"precision": precision, "backend": backend, "chunk_bytes": chunk_bytes}
    losses = sampled_softmax(leaves[0], targets, *leaves[1:], samples, tries, **options)
    mean = (losses * torch.linspace(0.5, 1.5, len(losses), dtype=dtype)).mean()
    return [losses.detach(), *torch.autograd.grad(mean, leaves)]


def refused(backend, precision):
    """Skips where a backend refuses a precision here."""
    why = _dispatch._REGISTRY["sampled_softmax"][backend].unsupported(device_of(backend), torch.float32, precision)
    if why is not None:
        pytest.skip(why)


@kernels
@pytest.mark.parametrize("chunk_bytes", [4096, 2**25])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [*SHAPES[1:], (300, 40, 150, 700)])
def test_no_worse_than_torch(shape, precision, chunk_bytes, backend):
    """Losses and gradients of a weighted mean against float64; torch's with the same operands rounded. One chunk,
    several."""
    refused(backend, precision)
    arguments = problem(*shape, dtype=torch.float32)
    truth = exact_gradients(*arguments, torch.float64, "float32", "reference")
    plain = exact_gradients(*arguments, torch.float32, precision, "reference")
    ours = exact_gradients(*arguments, torch.float32, precision, backend, chunk_bytes)
    for name, *triple in zip(("losses", "hidden", "weight", "bias"), ours, plain, truth, strict=True):
        assert_no_worse(name, *triple, precision)


@kernels
def test_float16_gradients_of_improbable_words_do_not_underflow(backend):
    """Targets far ahead leave the others 1e-6 each, where float16 has steps of 6e-8; errors stay near its 2^-11."""
    hidden, weight, bias, targets, samples, tries = problem(60, 16, 2000, 6000, dtype=torch.float32)
    hidden, bias = hidden / 8, bias / 8
    bias[targets] += 12
    arguments = (hidden, weight, bias, targets, samples, tries, torch.float32)
    others = samples[~torch.isin(samples, targets)]
    truth = exact_gradients(*arguments[:-1], torch.float64, "float32", "reference")[2][others]
    ours = exact_gradients(*arguments, "float16", backend)[2][others]
    assert (ours - truth).norm() / truth.norm() < 2e-3


@every
def test_a_small_loss_keeps_its_digits(backend):
    """A target 60 ahead of the others: float32 still tells the loss e^-60 from zero where the kernel computes it."""
    if backend == "reference":
        pytest.skip("the definition in plain torch subtracts two sums of like size")
    hidden, weight = torch.ones(1, 1), torch.tensor([[60.0], [0.0], [0.0]])
    loss = sampled_softmax(hidden, torch.tensor([0]), weight, torch.zeros(3), torch.tensor([1]), 1, backend=backend)
    q = expected_counts(torch.tensor([0, 1]), 1, 1, 3)
    torch.testing.assert_close(loss.item(), math.exp(-60) * float(q[0] / q[1]), rtol=1e-4, atol=0)


@every
def test_chunks_change_nothing_but_rounding(backend):
    """One row at a time, a few, all at once."""
    arguments = problem(50, 8, 30, 100, dtype=torch.float32)
    runs = [exact_gradients(*arguments, torch.float32, "float32", backend, size) for size in (1, 30 * 4 * 7, 2**25)]
    for other in runs[1:]:
        for name, a, b in zip("lhwb", other, runs[0], strict=True):
            assert_close(name, a, b)


@needs_native
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_logits_stay_within_the_bound(precision):
    """The kernel's saved tensors: all probabilities if they fit into chunk_bytes, none otherwise."""
    hidden, weight, bias, targets, samples, _ = problem(50, 8, 30, 100, dtype=torch.float32, grad=True)
    for chunk_bytes, kept in ((50 * 30 * 4, 50), (50 * 30 * 4 - 1, 0)):
        ids, options = torch.cat([targets, samples]), (precision, chunk_bytes, True)
        probabilities = torch.ops.elmo_fast.sampled_softmax(hidden, weight[ids], bias[ids], ids, *options)[2]
        assert probabilities.shape == (kept, 30)
    assert (
        torch.ops.elmo_fast.sampled_softmax(hidden, weight[ids], bias[ids], ids, precision, 2**25, False)[2].numel()
        == 0
    )


@needs_native
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_threads(precision):
    """One thread and two give the same numbers to rounding."""
    arguments = problem(60, 16, 300, 1000, dtype=torch.float32)
    results = with_one_and_two(lambda: exact_gradients(*arguments, torch.float32, precision, "native"))
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_close(name, a, b)


@every
def test_second_derivatives(backend):
    hidden, weight, bias, targets, samples, tries = problem(grad=True, dtype=exact(backend))
    losses = sampled_softmax(hidden, targets, weight, bias, samples, tries, backend=backend)
    check_second_derivative(losses, hidden, backend)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8; got values from 0 to 9"),
        ({"targets": torch.tensor([0, -1])}, "got values from -1"),
        ({"samples": torch.tensor([9])}, "samples must be words"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, r"targets must have shape \[N=2\]"),
        ({"targets": torch.zeros(2, dtype=torch.int32)}, "share one device and dtype"),
        ({"samples": torch.zeros(0, dtype=torch.long)}, "at least one word"),
        ({"weight": torch.zeros(0, 3), "bias": torch.zeros(0)}, "weight must hold at least one word"),
        ({"weight": torch.zeros(9, 4)}, r"weight must have shape \[V, D=3\]"),
        ({"bias": torch.zeros(8)}, r"bias must have shape \[V=9\]"),
        ({"hidden": torch.zeros(2, 3, dtype=torch.float64)}, "share one device and dtype"),
        ({"precision": "int8"}, "precision must be one of float32"),
        ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
        ({"correction": "keras"}, "correction must be one of"),
    ],
)
def test_bad_arguments_are_refused(change, wanted):
    """Each in one sentence: argument, wanted, given."""
    given = {
        "hidden": torch.zeros(2, 3),
        "targets": torch.tensor([0, 1]),
        "weight": torch.zeros(9, 3),
        "bias": torch.zeros(9),
        "samples": torch.tensor([4]),
        "tries": 1,
    } | change
    with pytest.raises(ElmoFastError, match=wanted):
        sampled_softmax(**given)


@needs_native
@pytest.mark.parametrize("chunk_bytes", [100, 2**25])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_opcheck_native(chunk_bytes, precision):
    """Every registered op agrees with its fake, its schema and its autograd."""
    hidden, weight, bias, targets, samples, _ = problem(dtype=torch.float32)
    ids, ops = torch.cat([targets, samples]), torch.ops.elmo_fast
    inputs = [x.detach().requires_grad_() for x in (hidden, weight[ids], bias[ids])]
    torch.library.opcheck(ops.sampled_softmax.default, (*inputs, ids, precision, chunk_bytes, True))
    plain = [x.detach() for x in inputs]
    saved = ops.sampled_softmax(*plain, ids, precision, chunk_bytes, True)
    arguments = (torch.ones(7), *plain, ids, *saved, precision, chunk_bytes)
    torch.library.opcheck(ops.sampled_softmax_backward.default, arguments)


@every
def test_the_dense_form_compiles_without_a_break(backend):
    """fullgraph=True, forward and backward, tries as a tensor."""
    hidden, weight, bias, targets, samples, tries = problem(grad=True, dtype=exact(backend))

    def f(hidden, weight, bias, targets, samples, tries):
        return sampled_softmax(hidden, targets, weight, bias, samples, tries, backend=backend)

    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        losses = g(hidden, weight, bias, targets, samples, tries)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), (hidden, weight, bias))])
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_exactly(name, a, b, backend)
