"""scalar_mix: the formula, both libraries' layer norms, gradients through the statistics."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, scalar_mix
from tests.tolerances import assert_close, assert_no_worse

needs_native = pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
both = pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])
SHAPES = [(1, 1, 1), (3, 5, 4), (2, 7, 129), (129, 3, 33), (1, 40, 1024)]


def problem(shape, layers=3, mixes=2, dtype=torch.float64, grad=False):
    xs = [(torch.randn(shape, dtype=torch.float64) * (i + 1) + i).to(dtype) for i in range(layers)]
    scalars, gammas = torch.randn(mixes, layers).to(dtype), torch.randn(mixes).to(dtype)
    mask = torch.rand(shape[:-1]) < 0.7
    mask.view(-1)[0] = True
    return [x.requires_grad_(grad) for x in xs], scalars.requires_grad_(grad), gammas.requires_grad_(grad), mask


def by_hand(layers, scalars, gammas, mask=None, eps=1e-12):
    """The definition by indexing: the elements at counted positions are gathered, torch.var gives their variance."""
    mixes = []
    for weights, gamma in zip(scalars, gammas, strict=True):
        share = weights.exp() / weights.exp().sum()
        mix = torch.zeros_like(layers[0])
        for s, x in zip(share, layers, strict=True):
            if mask is not None:
                counted = x[mask]
                x = (x - counted.mean()) / (counted.var(unbiased=False) + eps).sqrt()
            mix = mix + s * x
        mixes.append(gamma * mix)
    return torch.stack(mixes)


@both
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_values_in_float64(backend, shape, layer_norm):
    """Equal to the definition by indexing; positions that do not count are normalised as well."""
    xs, scalars, gammas, mask = problem(shape)
    found = scalar_mix(xs, scalars, gammas, layer_norm=layer_norm, statistics_mask=mask, backend=backend)
    assert_close("mixes", found, by_hand(xs, scalars, gammas, mask if layer_norm else None), "float64")


@needs_native
@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_float32_is_no_worse_than_torch(shape, layer_norm):
    """Outputs and every gradient, against float64."""
    results = {}
    for name, dtype, backend in (
        ("truth", torch.float64, "reference"),
        ("torch", torch.float32, "reference"),
        ("ours", torch.float32, "native"),
    ):
        torch.manual_seed(1)
        xs, scalars, gammas, mask = problem(shape, dtype=torch.float32)
        upstream = torch.randn(2, *shape)
        leaves = [t.to(dtype).requires_grad_() for t in (scalars, gammas, *xs)]
        y = scalar_mix(leaves[2:], *leaves[:2], layer_norm=layer_norm, statistics_mask=mask, backend=backend)
        results[name] = [y.detach(), *torch.autograd.grad(y, leaves, upstream.to(dtype))]
    names = ["mixes", "scalars", "gammas", "layer 0", "layer 1", "layer 2"]
    for name, *triple in zip(names, results["ours"], results["torch"], results["truth"], strict=True):
        assert_no_worse(name, *triple, "float32")


@both
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_gradcheck(backend, layer_norm, masked):
    """Gradients to layers, scalars and gammas, through mean and variance, at counted and other positions."""
    xs, scalars, gammas, mask = problem((3, 4, 5), grad=True)

    def f(scalars, gammas, *xs):
        chosen = mask if masked else None
        return scalar_mix(xs, scalars, gammas, layer_norm=layer_norm, statistics_mask=chosen, backend=backend)

    assert torch.autograd.gradcheck(f, (scalars, gammas, *xs))


@both
def test_eps_stands_under_the_root(backend):
    """Of constant layers only the term is left: (x - mean) / sqrt(0 + eps) = 0, and a wide eps shrinks everything."""
    x = torch.tensor([[1.0, -1.0], [1.0, -1.0]], dtype=torch.float64)
    scalars, gammas = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    found = scalar_mix([x], scalars, gammas, layer_norm=True, eps=3.0, backend=backend)
    assert_close("half", found[0], x / 2, "float64")


@both
def test_where_the_statistics_are_taken_matters(backend):
    """With BOS and EOS (AllenNLP) and without (bilm-tf) they differ; without layer_norm the mask is not looked at."""
    xs, scalars, gammas, _ = problem((2, 6, 3))
    inner = torch.ones(2, 6, dtype=torch.long)
    inner[:, 0] = inner[:, -1] = 0
    whole = scalar_mix(xs, scalars, gammas, layer_norm=True, backend=backend)
    part = scalar_mix(xs, scalars, gammas, layer_norm=True, statistics_mask=inner, backend=backend)
    assert_close("inner", part, by_hand(xs, scalars, gammas, inner != 0), "float64")
    assert (whole - part).abs().max() > 1e-3
    plain = scalar_mix(xs, scalars, gammas, backend=backend)
    assert torch.equal(plain, scalar_mix(xs, scalars, gammas, statistics_mask=inner, backend=backend))


@both
def test_one_tensor_a_list_and_strided_views_agree(backend):
    """[L, B, T, D], its slices and transposed copies of them give the same values and gradients."""
    stacked = torch.randn(3, 4, 5, 6, dtype=torch.float64)
    scalars, gammas = torch.randn(1, 3, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    results = []
    for form in (lambda x: x, list, lambda x: [layer.mT.contiguous().mT for layer in x]):
        leaf = stacked.clone().requires_grad_()
        y = scalar_mix(form(leaf), scalars, gammas, layer_norm=True, backend=backend)
        results.append((y.detach(), *torch.autograd.grad(y.square().sum(), leaf)))
    for other in results[1:]:
        assert_close("values", other[0], results[0][0], "float64")
        assert_close("gradient", other[1], results[0][1], "float64")


@both
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 3, 0)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_empty_batches(backend, shape, layer_norm):
    """Nothing in, nothing out, and gradients of the right shape."""
    xs, scalars, gammas = [torch.randn(shape, requires_grad=True)] * 2, torch.zeros(2, 2), torch.ones(2)
    y = scalar_mix(xs, scalars, gammas, layer_norm=layer_norm, backend=backend)
    assert y.shape == (2, *shape)
    assert torch.autograd.grad(y.sum(), xs[0])[0].shape == shape


@needs_native
def test_only_wanted_gradients_are_computed():
    """A frozen biLM: gradients to scalars and gammas alone; and to one layer of three."""
    xs, scalars, gammas, _ = problem((2, 3, 4))
    for wanted in ([scalars.requires_grad_(), gammas.requires_grad_()], [xs[1].requires_grad_()]):
        native, plain = (
            torch.autograd.grad(scalar_mix(xs, scalars, gammas, layer_norm=True, backend=b).square().sum(), wanted)
            for b in ("native", "reference")
        )
        for ours, truth in zip(native, plain, strict=True):
            assert_close("gradient", ours, truth, "float64")


@needs_native
def test_the_thread_count_changes_nothing():
    """Outputs and gradients are bit-equal with one thread and two."""
    results, threads = [], torch.get_num_threads()
    for count in (1, 2):
        torch.manual_seed(3)
        torch.set_num_threads(count)
        xs, scalars, gammas, mask = problem((31, 9, 65), dtype=torch.float32, grad=True)
        y = scalar_mix(xs, scalars, gammas, layer_norm=True, statistics_mask=mask, backend="native")
        results.append([y.detach(), *torch.autograd.grad(y.square().sum(), [*xs, scalars, gammas])])
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@needs_native
def test_second_derivatives_are_refused():
    """The kernel's gradient has none of its own and says so."""
    xs, scalars, gammas, _ = problem((2, 2, 2), grad=True)
    y = scalar_mix(xs, scalars, gammas, backend="native")
    (first,) = torch.autograd.grad(y.square().sum(), xs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="not differentiable"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"layers": []}, "at least one tensor"),
        ({"layers": [torch.zeros(2, 3), torch.zeros(2, 4)]}, r"share one shape.*\(2, 3\).*\(2, 4\)"),
        ({"layers": [torch.zeros(2, 3, dtype=torch.long)] * 2}, "floating-point"),
        ({"scalars": torch.zeros(1, 3)}, r"scalars must have shape \[M, L=2\]"),
        ({"gammas": torch.zeros(2)}, r"gammas must have shape \[M=1\]"),
        ({"gammas": torch.zeros(1, dtype=torch.float64)}, "share one device and dtype"),
        ({"layer_norm": True, "statistics_mask": torch.ones(3)}, r"statistics_mask must have shape \(2,\)"),
        ({"layer_norm": True, "statistics_mask": torch.zeros(2)}, "marks no position"),
        ({"backend": "cuda"}, "backend must be one of auto"),
    ],
)
def test_bad_arguments_are_refused(change, wanted):
    """Each in one sentence: argument, wanted, given."""
    given = {"layers": [torch.zeros(2, 3)] * 2, "scalars": torch.zeros(1, 2), "gammas": torch.ones(1)} | change
    with pytest.raises(ElmoFastError, match=wanted):
        scalar_mix(given.pop("layers"), given.pop("scalars"), given.pop("gammas"), **given)


@needs_native
@pytest.mark.parametrize("layer_norm", [False, True])
def test_opcheck(layer_norm):
    """Every registered op agrees with its fake, its schema and its autograd."""
    xs, _, _, mask = problem((2, 3, 4), grad=True)
    coefficients = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    ops = torch.ops.elmo_fast
    torch.library.opcheck(ops.scalar_mix.default, (xs, coefficients, mask, layer_norm, 1e-12))
    y, statistics = ops.scalar_mix(xs, coefficients, mask, layer_norm, 1e-12)
    plain = [x.detach() for x in xs]
    torch.library.opcheck(ops.scalar_mix_sums.default, (y.detach(), plain, statistics.detach()))
    sums = ops.scalar_mix_sums(y.detach(), plain, statistics.detach())
    arguments = (y.detach(), plain, coefficients.detach(), mask, statistics.detach(), sums, layer_norm)
    torch.library.opcheck(ops.scalar_mix_backward.default, arguments)


@both
def test_compiles_without_a_break(backend):
    """fullgraph=True, forward and backward."""
    xs, scalars, gammas, mask = problem((2, 3, 4), grad=True)

    def f(scalars, gammas, *xs):
        return scalar_mix(xs, scalars, gammas, layer_norm=True, statistics_mask=mask, backend=backend)

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")(scalars, gammas, *xs)
    eager = f(scalars, gammas, *xs)
    assert_close("mixes", compiled, eager, "float64")
    for a, b in zip(torch.autograd.grad(compiled.sum(), xs), torch.autograd.grad(eager.sum(), xs), strict=True):
        assert_close("gradient", a, b, "float64")
