"""scalar_mix: the formula, both libraries' layer norms, gradients through the statistics."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import scalar_mix
from elmo_fast.ops.scalar_mix import keep_mask
from tests.support.backends import backends, needs
from tests.support.tolerances import assert_close, assert_no_worse

kernels = pytest.mark.parametrize("backend", backends("scalar_mix"))
every = pytest.mark.parametrize("backend", backends("scalar_mix", reference=True))
triton = pytest.mark.parametrize("backend", backends("scalar_mix", only="triton"))
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_values_in_float64(shape, layer_norm):
    """Equal to the definition by indexing; positions that do not count are normalised as well; a mask of numbers."""
    xs, scalars, gammas, mask = problem(shape)
    actual = scalar_mix(xs, scalars, gammas, layer_norm=layer_norm, statistics_mask=mask.long(), backend="reference")
    assert_close("mixes", actual, by_hand(xs, scalars, gammas, mask if layer_norm else None), "float64")


def assert_matches_truth(backend, shape, dtype=torch.float32, layers=3, mixes=2, **options):
    """Outputs and every gradient, against float64. Scalars and gammas stay float32."""
    results = {}
    for name, of_layers, of_scalars, chosen in (
        ("truth", torch.float64, torch.float64, "reference"),
        ("torch", dtype, torch.float32, "reference"),
        ("ours", dtype, torch.float32, backend),
    ):
        torch.manual_seed(1)
        xs, scalars, gammas, mask = problem(shape, layers, mixes, dtype=dtype)
        upstream = torch.randn(mixes, *shape).to(dtype)
        leaves = [*(t.float().to(of_scalars) for t in (scalars, gammas)), *(x.to(of_layers) for x in xs)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        y = scalar_mix(leaves[2:], *leaves[:2], statistics_mask=mask, backend=chosen, **options)
        assert y.dtype == of_layers
        d_scalars, d_gammas, *d_layers = torch.autograd.grad(y, leaves, upstream.to(of_layers))
        # One vector: both come from the same sums, and of a single gamma torch's error may be 0 by chance.
        d_weights = torch.cat([d_scalars.view(-1), d_gammas])
        results[name] = [y.detach(), d_weights, *d_layers]
    names = ["mixes", "scalars and gammas", *(f"layer {k}" for k in range(layers))]
    precision = str(dtype).removeprefix("torch.")
    for name, *triple in zip(names, results["ours"], results["torch"], results["truth"], strict=True):
        assert_no_worse(name, *triple, precision)


@kernels
@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_float32_is_no_worse_than_torch(shape, layer_norm, backend):
    assert_matches_truth(backend, shape, layer_norm=layer_norm)


@triton
@pytest.mark.parametrize(
    ("layers", "mixes", "layer_norm", "dtype"),
    [
        (1, 1, False, torch.float32),
        (9, 1, True, torch.float32),
        (6, 5, True, torch.float32),
        (6, 5, False, torch.float16),
    ],
)
def test_more_layers_and_mixes_than_one_launch_takes(layers, mixes, layer_norm, dtype, backend):
    """Four mixes forward; two mixes and four layers backward. Results that are not final are not rounded."""
    needs("scalar_mix", backend, dtype=dtype)
    assert_matches_truth(backend, (3, 5, 33), dtype, layers, mixes, layer_norm=layer_norm, dropout=0.25, seed=3)


@triton
@pytest.mark.parametrize("dtype", [torch.float16], ids=str)
def test_16_bit_results_are_rounded_once(dtype, backend):
    """Between launches sums stay in float32: nearly every result is the float64 one, rounded."""
    needs("scalar_mix", backend, dtype=dtype)
    results = []
    for of_layers, of_scalars, chosen in (
        (torch.float64, torch.float64, "reference"),
        (dtype, torch.float32, backend),
    ):
        torch.manual_seed(1)
        xs, scalars, gammas, _ = problem((4, 5, 50), 6, 5, dtype=dtype)
        leaves = [x.to(of_layers).requires_grad_() for x in xs]
        y = scalar_mix(leaves, *(t.float().to(of_scalars) for t in (scalars, gammas)), backend=chosen)
        upstream = torch.randn(y.shape).to(dtype).to(of_layers)
        results.append([t.to(dtype) for t in (y.detach(), *torch.autograd.grad(y, leaves, upstream))])
    for actual, truth in zip(*results, strict=True):
        assert (actual != truth).double().mean() < 0.01


@triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_more_elements_than_one_block_takes(dtype, backend, monkeypatch):
    """Several blocks for each program, the last one partly filled."""
    needs("scalar_mix", backend, dtype=dtype)
    from elmo_fast.ops.scalar_mix import kernels

    monkeypatch.setattr(kernels, "PROGRAMS", 2)
    assert_matches_truth(backend, (2, 9, 1100), dtype, layer_norm=True, dropout=0.5, seed=3)
    assert_matches_truth(backend, (2, 9, 1100), dtype, mixes=1)


@triton
def test_a_mean_far_from_zero(backend):
    """Statistics of layers of mean 1000 and deviation 1: sums of squares alone would leave nothing."""
    results = {}
    for name, dtype, chosen in (("truth", torch.float64, "reference"), ("ours", torch.float32, backend)):
        torch.manual_seed(1)
        x = (torch.randn(5, 40, 64) + 1000 + 3 * torch.arange(5.0)[:, None, None]).to(dtype)
        one, weight = torch.ones(1, dtype=dtype), torch.zeros(1, 1, dtype=dtype)
        results[name] = scalar_mix([x], weight, one, layer_norm=True, backend=chosen)
    assert_no_worse("mix", results["ours"], results["truth"], results["truth"], "float32")


@every
def test_eps_stands_under_the_root(backend):
    """Only the term is left of constant layers: (x - mean) / sqrt(0 + eps) = 0, and a wide eps shrinks everything."""
    x = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    actual = scalar_mix([x], torch.zeros(1, 1), torch.ones(1), layer_norm=True, eps=3.0, backend=backend)
    assert_close("half", actual[0], x / 2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"layers": []}, "at least one tensor"),
        ({"layers": [torch.zeros(2, 3), torch.zeros(2, 4)]}, r"share one shape.*\(2, 3\).*\(2, 4\)"),
        ({"scalars": torch.zeros(1, 3)}, r"scalars must have shape \[M, L=2\]"),
        ({"layer_norm": True, "statistics_mask": torch.ones(3)}, r"statistics_mask must have shape \(2,\)"),
        ({"layer_norm": True, "statistics_mask": torch.zeros(2)}, "marks no position"),
        ({"dropout": 1.0}, "dropout must be a probability"),
        ({"dropout": 0.5, "seed": torch.zeros(1, dtype=torch.long)}, r"seed must have shape \[\]"),
        ({"dropout": 0.5, "seed": torch.tensor(1.0)}, "seed must be int64"),
        (
            {"layers": [torch.zeros(2, 3).half()] * 2, "gammas": torch.zeros(1, dtype=torch.float64)},
            "scalar_mix: scalars and gammas must share",
        ),
        ({"layers": [torch.zeros(2, 3).half(), torch.zeros(2, 3)]}, "layers must share one device and dtype"),
    ],
)
def test_bad_arguments_are_refused(change, expected):
    """Each in one sentence: argument, expected, actual."""
    arguments = {"layers": [torch.zeros(2, 3)] * 2, "scalars": torch.zeros(1, 2), "gammas": torch.ones(1)} | change
    with pytest.raises(ElmoFastError, match=expected):
        scalar_mix(arguments.pop("layers"), arguments.pop("scalars"), arguments.pop("gammas"), **arguments)


@every
@pytest.mark.parametrize("seed", [5, 2**63 - 1])
def test_dropout_drops_the_same_elements_everywhere(backend, seed):
    """Mixes of ones: what is left is the mask itself, by the generator alone; for every mix and seed another."""
    shape, p = (2, 5, 1000), 0.3
    ones, scalars, gammas = [torch.ones(shape)] * 2, torch.zeros(3, 2), torch.ones(3)
    y = scalar_mix(ones, scalars, gammas, dropout=p, seed=seed, backend=backend)
    kept = keep_mask(y.shape, p, torch.tensor(seed))
    assert torch.equal(y != 0, kept)
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / 0.7))
    share = kept.double().mean((1, 2, 3))
    assert ((share - 0.7).abs() < 5 * (0.21 / 10000) ** 0.5).all()
    other = keep_mask(y.shape, p, torch.tensor(seed ^ (1 << 40)))
    for one, two in ((kept[0], kept[1]), (kept[1], kept[2]), (kept, other), (kept[:, 0], kept[:, 1])):
        assert abs((one == two).double().mean().item() - 0.58) < 0.03
    again = scalar_mix(ones, scalars, gammas, dropout=p, seed=torch.tensor(seed), backend=backend)
    assert torch.equal(y, again)


@every
def test_dropout_without_a_seed_follows_torchs_generator(backend):
    ones, scalars, gammas = [torch.ones(4, 5)], torch.zeros(1, 1), torch.ones(1)
    torch.manual_seed(2)
    first = scalar_mix(ones, scalars, gammas, dropout=0.5, backend=backend)
    second = scalar_mix(ones, scalars, gammas, dropout=0.5, backend=backend)
    torch.manual_seed(2)
    assert torch.equal(first, scalar_mix(ones, scalars, gammas, dropout=0.5, backend=backend))
    assert not torch.equal(first, second)


@triton
def test_a_mask_that_marks_nothing_gives_nan_where_it_is_not_looked_at(backend):
    """Compiling looks at no mask, as a GPU does not: no mean, so no number."""
    xs, mask = [torch.randn(2, 3, 4)], torch.zeros(2, 3)

    def f(*xs):
        one = torch.ones(1)
        return scalar_mix(xs, torch.zeros(1, 1), one, layer_norm=True, statistics_mask=mask, backend=backend)

    assert torch.compile(f, fullgraph=True, backend="aot_eager")(*xs).isnan().all()
