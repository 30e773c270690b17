"""negative_sampling: the loss by hand, gradients dense and sparse, chunks, precisions, on every backend."""

import functools
import math

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, alias_sample, alias_table, negative_sampling
from elmo_fast.ops.negative_sampling import reference
from tests.backends import backends, needs
from tests.ops.derivatives import check_second_derivative, dense_of
from tests.ops.exact import assert_exactly, exact
from tests.ops.saved import outputs_of
from tests.threads import with_one_and_two
from tests.tolerances import SMALL, assert_close, assert_no_worse

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
kernels = pytest.mark.parametrize("backend", backends("negative_sampling"))
every = pytest.mark.parametrize("backend", backends("negative_sampling", reference=True))
doubles = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])
SHAPES = [(1, 1, 1, 2), (3, 5, 4, 9), (129, 33, 65, 200), (7, 64, 130, 500)]  # N, D, S, V
OBJECTIVES = pytest.mark.parametrize("noise", [False, True], ids=["word2vec", "nce"])


def problem(count=7, width=6, samples=10, words=40, dtype=torch.float64, grad=False, noise=False):
    """Arguments and options: some targets among the samples, some samples twice."""
    hidden, weight, bias = torch.randn(count, width), torch.randn(words, width), torch.randn(words)
    weights = 1.0 / torch.arange(1, words + 1)
    ids = alias_sample(samples, alias_table(weights.cpu(), power=0.75), seed=3, device=torch.get_default_device())
    targets = torch.randint(0, words, (count,))
    targets[: count // 2] = ids[torch.randint(0, samples, (count // 2,))]
    hidden, weight, bias = (x.to(dtype).requires_grad_(grad) for x in (hidden, weight, bias))
    log_noise = (weights**0.75 / (weights**0.75).sum()).log().to(dtype)
    return (hidden, targets, weight, bias, ids), {"negatives": 5, "log_noise": log_noise if noise else None}


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


@every
@OBJECTIVES
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_by_hand(backend, shape, noise):
    """Every term of the formula: biases, hits left out or counted, repeated samples, the law of the noise."""
    arguments, options = problem(*shape, noise=noise, dtype=exact(backend))
    found = negative_sampling(*arguments, **options, backend=backend)
    assert_exactly("losses", found, by_hand(*arguments, **options), backend)


@every
def test_a_sample_for_each_row_is_word2vecs_own(backend):
    """K = S without a bias: -ln σ(h · w_t) - sum_k ln σ(-h · w_k), in torch's words."""
    (hidden, targets, weight, bias, samples), _ = problem(1, dtype=exact(backend))
    targets, bias = torch.tensor([39]), torch.zeros_like(bias)
    wanted = -(hidden[0] @ weight[39]).sigmoid().log() - (-(weight[samples] @ hidden[0])).sigmoid().log().sum()
    found = negative_sampling(hidden, targets, weight, bias, samples, backend=backend)
    assert_exactly("loss", found, wanted[None], backend)


@every
def test_noise_contrastive_estimation_is_at_rest_where_the_model_is_right(backend):
    """Expected over targets and noise, the gradient is 0 where h · w + b is ln p(k | h); that of word2vec's not."""
    words, negatives, dtype = 12, 7, exact(backend)
    log_p = torch.randn(words, dtype=dtype).log_softmax(0)
    weight, hidden = torch.zeros(words, 1, dtype=dtype), torch.ones(words, 1, dtype=dtype)
    arguments = hidden, torch.arange(words), weight
    for log_noise in (torch.full((words,), -math.log(words), dtype=dtype), None):
        bias = log_p.clone().requires_grad_()
        options = {"negatives": negatives, "log_noise": log_noise, "backend": backend}
        losses = negative_sampling(*arguments, bias, torch.arange(words), **options)
        (gradient,) = torch.autograd.grad((losses * log_p.exp()).sum(), bias)
        assert (gradient.abs().max() < 10 * SMALL[str(dtype)[6:]]) == (log_noise is not None)


@doubles
@OBJECTIVES
@pytest.mark.parametrize("chunk_bytes", [1, 8 * 6 * 3, 2**25])
def test_gradcheck(backend, chunk_bytes, noise):
    """Gradients to hidden, table and bias; one row a chunk, three, all; kept slopes and computed again."""
    (hidden, targets, weight, bias, samples), options = problem(4, 3, 6, 12, grad=True, noise=noise)

    def f(hidden, weight, bias):
        return negative_sampling(
            hidden, targets, weight, bias, samples, **options, chunk_bytes=chunk_bytes, backend=backend
        )

    assert torch.autograd.gradcheck(f, (hidden, weight, bias))


@every
@OBJECTIVES
@pytest.mark.parametrize(
    "case", ["mixed", "all targets equal", "all targets sampled", "one sample", "one word sampled"]
)
def test_sparse_gradients_are_the_dense_ones(backend, case, noise):
    """Same numbers; indices are the distinct words used, in order, and the flag can be had without another sort."""
    (hidden, targets, weight, bias, samples), options = problem(grad=True, noise=noise, dtype=exact(backend))
    if case == "all targets equal":
        targets = torch.full_like(targets, 39)
    elif case == "all targets sampled":
        targets = samples[:7]
    elif case == "one sample":
        samples = torch.tensor([5])
    elif case == "one word sampled":
        samples = torch.full((10,), 3)
    gradients = []
    for sparse in (False, True):
        hidden.grad = weight.grad = bias.grad = None
        arguments = hidden, targets, weight, bias, samples
        losses = negative_sampling(*arguments, **options, sparse=sparse, backend=backend)
        (losses * torch.arange(1.0, 8.0)).sum().backward()
        gradients.append((hidden.grad, weight.grad, bias.grad))
    for name, dense, sparse in zip(("hidden", "weight", "bias"), *gradients, strict=True):
        if name != "hidden":
            sparse = dense_of(sparse, torch.cat([targets, samples]))
        assert_exactly(name, sparse, dense, backend)


@every
@pytest.mark.parametrize("count", [0, 1, 3, 129])
def test_row_counts(backend, count):
    """No row gives no loss and zero gradients; any other count agrees with its rows taken in pieces."""
    (hidden, targets, weight, bias, samples), options = problem(max(count, 1), grad=True, dtype=exact(backend))
    losses = negative_sampling(hidden[:count], targets[:count], weight, bias, samples, **options, backend=backend)
    assert losses.shape == (count,)
    gradients = torch.autograd.grad(losses.sum(), (hidden, weight, bias))
    if count == 0:
        assert not any(g.any() for g in gradients)
        return
    pieces = [slice(0, 1), slice(1, 2), slice(2, 66), slice(66, 129)]
    apart = torch.cat(
        [
            negative_sampling(hidden[piece], targets[piece], weight, bias, samples, **options, backend=backend)
            for piece in pieces
            if piece.start < count
        ]
    )
    assert_exactly("losses", losses, apart, backend)
    for name, a, b in zip("hwb", gradients, torch.autograd.grad(apart.sum(), (hidden, weight, bias)), strict=True):
        assert_exactly(name, a, b, backend)


@every
def test_strided_views(backend):
    """Transposed hidden and table, every second target, sample, bias and law: losses and gradients."""
    (hidden, targets, weight, bias, samples), options = problem(noise=True, dtype=exact(backend))
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    wanted = negative_sampling(hidden, targets, weight, bias, samples, **options, backend=backend)
    wanted_gradients = torch.autograd.grad(wanted.square().sum(), leaves)
    views = [x.detach().mT.contiguous().mT.requires_grad_() for x in (hidden, weight)]
    second = [torch.stack([x, x], -1)[:, 0] for x in (targets, bias.detach(), samples, options["log_noise"])]
    second[1].requires_grad_()
    options = options | {"log_noise": second[3], "backend": backend}
    found = negative_sampling(views[0], second[0], views[1], second[1], second[2], **options)
    assert_exactly("losses", found, wanted, backend)
    gradients = torch.autograd.grad(found.square().sum(), (*views, second[1]))
    for name, a, b in zip("hwb", gradients, wanted_gradients, strict=True):
        assert_exactly(name, a, b, backend)


def losses_and_gradients(arguments, options, dtype, precision, backend, chunk_bytes=2**25):
    hidden, targets, weight, bias, samples = arguments
    leaves = [x.detach().to(dtype).requires_grad_() for x in (hidden, weight, bias)]
    if options["log_noise"] is not None:
        options = options | {"log_noise": options["log_noise"].to(dtype)}
    options = options | {"precision": precision, "backend": backend, "chunk_bytes": chunk_bytes}
    losses = negative_sampling(leaves[0], targets, *leaves[1:], samples, **options)
    mean = (losses * torch.linspace(0.5, 1.5, len(losses), dtype=dtype)).mean()
    return [losses.detach(), *torch.autograd.grad(mean, leaves)]


@kernels
@OBJECTIVES
@pytest.mark.parametrize("chunk_bytes", [4096, 2**25])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [*SHAPES[1:], (130, 40, 150, 700)])
def test_no_worse_than_torch(shape, precision, chunk_bytes, noise, backend):
    """Losses and gradients of a weighted mean against float64; torch's with the same operands rounded. One chunk,
    several."""
    needs("negative_sampling", backend, precision)
    arguments, options = problem(*shape, dtype=torch.float32, noise=noise)
    truth = losses_and_gradients(arguments, options, torch.float64, "float32", "reference")
    plain = losses_and_gradients(arguments, options, torch.float32, precision, "reference")
    ours = losses_and_gradients(arguments, options, torch.float32, precision, backend, chunk_bytes)
    for name, *triple in zip(("losses", "hidden", "weight", "bias"), ours, plain, truth, strict=True):
        assert_no_worse(name, *triple, precision)


@every
def test_every_score_keeps_its_digits(backend):
    """Small losses of samples far from the target do not vanish beside 1, large ones do not overflow; slopes too."""
    scores = [-60.0, -20.0, -14.0, -3.0, 0.0, 3.0, 20.0, 80.0, 1000.0]
    hidden, samples = torch.tensor(scores)[:, None].requires_grad_(), torch.ones(4099, dtype=torch.long)
    weight, bias = torch.tensor([[0.0], [1.0]]), torch.tensor([200.0, 0.0])
    losses = negative_sampling(hidden, torch.zeros(9, dtype=torch.long), weight, bias, samples, backend=backend)
    (slopes,) = torch.autograd.grad(losses.sum(), hidden)
    assert losses.tolist() == pytest.approx([4099 * softplus(score) for score in scores], rel=1e-4)
    wanted = [4099 / (1 + math.exp(min(-score, 700))) for score in scores]
    assert slopes[:, 0].tolist() == pytest.approx(wanted, rel=1e-4)


@every
@OBJECTIVES
def test_chunks_change_nothing_but_rounding(backend, noise):
    """One row (in Triton one tile) at a time, a few, all at once."""
    arguments, options = problem(70, 8, 30, 100, dtype=torch.float32, noise=noise)
    runs = [
        losses_and_gradients(arguments, options, torch.float32, "float32", backend, size)
        for size in (1, 30 * 4 * 7, 2**25)
    ]
    for other in runs[1:]:
        for name, a, b in zip("lhwb", other, runs[0], strict=True):
            assert_close(name, a, b)


@needs_native
def test_threads():
    """One thread and two give the same numbers to rounding."""
    arguments, options = problem(60, 16, 300, 1000, dtype=torch.float32)
    results = with_one_and_two(lambda: losses_and_gradients(arguments, options, torch.float32, "float32", "native"))
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_close(name, a, b)


@every
def test_second_derivatives(backend):
    (hidden, *arguments), options = problem(grad=True, dtype=exact(backend))
    check_second_derivative(negative_sampling(hidden, *arguments, **options, backend=backend), hidden, backend)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"targets": torch.tensor([0, 9])}, "targets must be words from 0 to V - 1 = 8; got values from 0 to 9"),
        ({"samples": torch.tensor([9])}, "samples must be words"),
        ({"samples": torch.zeros(2, 1, dtype=torch.long)}, r"samples must have shape \[S\]"),
        ({"targets": torch.zeros(3, dtype=torch.long)}, r"targets must have shape \[N=2\]"),
        ({"targets": torch.zeros(2, dtype=torch.int32)}, "share one device and dtype"),
        ({"samples": torch.zeros(0, dtype=torch.long)}, "at least one word"),
        ({"weight": torch.zeros(0, 3), "bias": torch.zeros(0)}, "weight must hold at least one word"),
        ({"bias": torch.zeros(8)}, r"bias must have shape \[V=9\]"),
        ({"log_noise": torch.zeros(8)}, r"log_noise must have shape \[V=9\]"),
        ({"log_noise": torch.zeros(9).double()}, "hidden and log_noise must share"),
        ({"negatives": 0}, "negatives must be above 0 and finite; got 0.0"),
        ({"negatives": math.inf}, "got inf"),
        ({"precision": "int8"}, "precision must be one of float32"),
        ({"chunk_bytes": 0}, "chunk_bytes must be at least 1"),
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
    } | change
    with pytest.raises(ElmoFastError, match=wanted):
        negative_sampling(**given)


@needs_native
@pytest.mark.parametrize("chunk_bytes", [100, 2**25])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_opcheck_native(chunk_bytes, precision):
    """Every registered op agrees with its fake, its schema and its autograd."""
    (hidden, targets, weight, bias, samples), _ = problem(dtype=torch.float32)
    ids, ops = torch.cat([targets, samples]), torch.ops.elmo_fast
    inputs, options = [x.detach().requires_grad_() for x in (hidden, weight[ids], bias[ids])], (0.5, False, precision)
    torch.library.opcheck(ops.negative_sampling.default, (*inputs, ids, *options, chunk_bytes, True))
    plain = [x.detach() for x in inputs]
    saved = ops.negative_sampling(*plain, ids, *options, chunk_bytes, True)[1:]
    arguments = (torch.ones(7), *plain, ids, *saved, *options, chunk_bytes)
    torch.library.opcheck(ops.negative_sampling_backward.default, arguments)


@every
@OBJECTIVES
def test_the_dense_form_compiles_without_a_break(backend, noise):
    """fullgraph=True, forward and backward."""
    (hidden, targets, weight, bias, samples), options = problem(grad=True, noise=noise, dtype=exact(backend))

    def f(hidden, weight, bias, targets, samples):
        return negative_sampling(hidden, targets, weight, bias, samples, **options, backend=backend)

    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        losses = g(hidden, weight, bias, targets, samples)
        results.append([losses.detach(), *torch.autograd.grad(losses.sum(), (hidden, weight, bias))])
    for name, a, b in zip("lhwb", *results, strict=True):
        assert_exactly(name, a, b, backend)


@pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
def test_slopes_are_kept_where_any_gradient_is_wanted():
    """7 x 10 of them; none of 7 rows where none is."""
    (hidden, targets, weight, bias, samples), _ = problem()

    def kept(*wanted):
        for tensor in (hidden, weight, bias):
            tensor.requires_grad_(any(tensor is each for each in wanted))
        call = functools.partial(negative_sampling, hidden, targets, weight, bias, samples, backend="native")
        return tuple(outputs_of("negative_sampling", call)[2].shape)

    assert [kept(hidden), kept(weight), kept(bias), kept()] == [(7, 10)] * 3 + [(0, 10)]


def test_the_definition_takes_as_many_rows_at_a_time_as_chunk_bytes_holds(monkeypatch):
    arguments, options = problem()
    sizes = []

    def losses(hidden, *rest):
        sizes.append(len(hidden))
        return hidden.new_zeros(len(hidden))

    monkeypatch.setattr(reference, "_losses", losses)
    negative_sampling(*arguments, **options, chunk_bytes=3 * 10 * 8, backend="reference")
    assert sizes == [3, 3, 1]


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

    wanted = gradient(torch.float64, "reference")
    assert (gradient(torch.float32, "native") - wanted).abs().max() <= 5e-7 * wanted.max()
