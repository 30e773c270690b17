"""highway: the native kernels against the definition in float64, with and without projection."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, _native, highway
from tests.tolerances import assert_no_worse

BACKENDS = ["reference", "native"]


class Case(NamedTuple):
    x: Tensor
    weights: list[Tensor]
    biases: list[Tensor]
    projection_weight: Tensor | None
    projection_bias: Tensor | None

    def to(self, dtype: torch.dtype) -> "Case":
        """Copies in `dtype` that require gradients."""

        def copy(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.detach().to(dtype).requires_grad_()

        return Case(copy(self.x), [copy(t) for t in self.weights], [copy(t) for t in self.biases], *map(copy, self[3:]))

    def tensors(self) -> list[Tensor]:
        projection = [t for t in self[3:] if t is not None]
        return [self.x, *self.weights, *self.biases, *projection]


def case(rows: int = 70, width: int = 40, layers: int = 2, projection: int = 24, bias: bool = True) -> Case:
    """Projection 0: none. The gates' biases are spread, so that gates open, close and hover."""
    return Case(
        torch.randn(rows, width),
        [torch.randn(2 * width, width) / width**0.5 for _ in range(layers)],
        [2 * torch.randn(2 * width) for _ in range(layers)],
        torch.randn(projection, width) / width**0.5 if projection else None,
        torch.randn(projection) if projection and bias else None,
    )


def gradients(c: Case, **options) -> tuple[Tensor, list[Tensor]]:
    y = highway(*c, **options)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return y, list(torch.autograd.grad(y, c.tensors(), grad))


def assert_matches_truth(c: Case, precision: str = "float32") -> None:
    truth, d_truth = gradients(c.to(torch.float64), backend="reference")
    torchs, d_torchs = gradients(c.to(torch.float32), precision=precision, backend="reference")
    ours, d_ours = gradients(c.to(torch.float32), precision=precision, backend="native")
    assert_no_worse("y", ours, torchs, truth, precision)
    for i, (one, other, true) in enumerate(zip(d_ours, d_torchs, d_truth, strict=True)):
        assert_no_worse(f"gradient {i}", one, other, true, precision)


@pytest.fixture
def no_block_kernels() -> Iterator[None]:
    assert _native.C is not None
    _native.C.disable_block_kernels(True)
    yield
    _native.C.disable_block_kernels(False)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("rows", "width", "layers", "projection", "bias"),
    [
        (70, 64, 2, 64, True),
        (129, 40, 2, 24, True),
        (1, 33, 1, 7, False),
        (3, 1, 3, 1, True),
        (65, 100, 1, 0, True),
        (20, 17, 0, 65, True),
        (513, 8, 2, 3, True),
    ],
)
def test_native_is_no_worse_than_torch(
    rows: int, width: int, layers: int, projection: int, bias: bool, precision: str
) -> None:
    assert_matches_truth(case(rows, width, layers, projection, bias), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.usefixtures("no_block_kernels")
def test_fall_back_without_block_kernels(precision: str) -> None:
    assert_matches_truth(case(), precision)


def test_the_gate_carries_and_the_first_rows_transform() -> None:
    """By hand: an open gate returns x, a closed one relu of the first W rows' product."""
    x = torch.tensor([[1.0, -2.0]])
    weight = torch.cat([torch.tensor([[3.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 2)])
    for backend in BACKENDS:
        opened = highway(x, [weight], [torch.tensor([0.0, 0.0, 100.0, 100.0])], backend=backend)
        closed = highway(x, [weight], [torch.tensor([0.0, 0.0, -100.0, -100.0])], backend=backend)
        torch.testing.assert_close(opened, x)
        torch.testing.assert_close(closed, torch.tensor([[3.0, 0.0]]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("layers", "projection", "bias"), [(2, 3, True), (1, 0, True), (1, 5, False), (0, 3, True)])
def test_gradcheck(backend: str, layers: int, projection: int, bias: bool) -> None:
    c = case(5, 4, layers, projection, bias).to(torch.float64)

    def run(*tensors: Tensor) -> Tensor:
        x, *rest = tensors
        return highway(x, rest[:layers], rest[layers : 2 * layers], *rest[2 * layers :], backend=backend)

    assert torch.autograd.gradcheck(run, c.tensors())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("projection", [24, 0])
def test_no_rows(backend: str, projection: int) -> None:
    c = case(rows=0, projection=projection).to(torch.float32)
    y, grads = gradients(c, backend=backend)
    assert y.shape == (0, projection or 40)
    assert all(g.shape == t.shape and g.eq(0).all() for g, t in zip(grads, c.tensors(), strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_layers_and_no_projection_is_a_copy(backend: str) -> None:
    x = torch.randn(3, 4)
    y = highway(x, [], [], backend=backend)
    assert torch.equal(y, x)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_is_the_same_in_any_batch(precision: str) -> None:
    """Bit-equal whatever the other rows, so that encoding unique words only changes no bit."""
    c = case(600, 96)
    everything = highway(*c, precision=precision)
    for rows in (1, 2, 7, 63, 64, 130, 513):
        assert torch.equal(highway(c.x[:rows], *c[1:], precision=precision), everything[:rows])
    assert torch.equal(highway(c.x[5:90], *c[1:], precision=precision), everything[5:90])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_change_nothing(precision: str) -> None:
    c, before = case(130, 96).to(torch.float32), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(gradients(c, precision=precision))
    finally:
        torch.set_num_threads(before)
    (one, d_one), (two, d_two) = results
    assert torch.equal(one, two)
    assert all(torch.equal(a, b) for a, b in zip(d_one, d_two, strict=True))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("projection", [24, 0])
def test_saving_for_backward_changes_nothing(precision: str, projection: int) -> None:
    c = case(projection=projection).to(torch.float32)
    with torch.no_grad():
        without = highway(*c, precision=precision)
    assert torch.equal(without, highway(*c, precision=precision))


def test_rounding_spares_what_the_gate_carries() -> None:
    """Through an open gate x passes with all its digits, whatever the products are rounded to."""
    x = torch.randn(5, 8)
    bias = torch.cat([torch.zeros(8), torch.full((8,), 100.0)])
    y = highway(x, [torch.randn(16, 8)], [bias], precision="bfloat16")
    torch.testing.assert_close(y, x, rtol=1e-6, atol=1e-6)


def test_strided_views() -> None:
    c = case(20, 12)

    def strided(t: Tensor) -> Tensor:
        return torch.stack([t, t], -1)[..., 0]

    views = Case(
        strided(c.x), [w.t().contiguous().t() for w in c.weights], [strided(b) for b in c.biases], *map(strided, c[3:])
    )
    assert not any(t.is_contiguous() for t in views.tensors())
    parameters = [t.requires_grad_() for t in views.tensors()]
    y = highway(*views, backend="native")
    plain = c.to(torch.float32)
    wanted = highway(*plain, backend="native")
    assert torch.equal(y, wanted)
    for ours, theirs in zip(
        torch.autograd.grad(y.sum(), parameters), torch.autograd.grad(wanted.sum(), plain.tensors()), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("chosen", [[0], [1], [2, 5], [3], [5], [6], [0, 4], [1, 2, 3, 4, 5, 6]])
def test_some_gradients_only(chosen: list[int]) -> None:
    """Any subset of x, two weights, two biases and the projection's two tensors may be asked for."""
    c = case(12).to(torch.float32)
    _, everything = gradients(c, backend="native")
    for i, tensor in enumerate(c.tensors()):
        tensor.requires_grad_(i in chosen)
    highway(*c, backend="native").backward(torch.randn(12, 24, generator=torch.Generator().manual_seed(1)))
    for i, tensor in enumerate(c.tensors()):
        assert torch.equal(tensor.grad, everything[i]) if i in chosen else tensor.grad is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_is_not_swallowed(backend: str) -> None:
    c = case(6, projection=0)
    c.x[2, 3] = torch.nan
    y = highway(*c, backend=backend)
    assert y[2].isnan().all()
    assert not y[[0, 1, 3, 4, 5]].isnan().any()


@pytest.mark.parametrize("projection", [6, 0])
@pytest.mark.parametrize("save", [True, False])
def test_opcheck(save: bool, projection: int) -> None:
    c = case(4, 6, projection=projection)
    c = c.to(torch.float32) if save else c
    torch.library.opcheck(torch.ops.elmo_fast.highway.default, (*c, "float32", save))


@pytest.mark.parametrize("projection", [6, 0])
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_opcheck_backward(needs: tuple[bool, bool], projection: int) -> None:
    c = case(4, 6, projection=projection)
    y, saved = torch.ops.elmo_fast.highway(*c, "bfloat16", True)
    arguments = (torch.randn_like(y), c.x, saved, c.weights, c.projection_weight, "bfloat16", *needs)
    torch.library.opcheck(torch.ops.elmo_fast.highway_backward.default, arguments)


def test_second_derivative_is_refused() -> None:
    c = case(5).to(torch.float32)
    (grad,) = torch.autograd.grad(highway(*c).sum(), c.x, create_graph=True)
    with pytest.raises(RuntimeError, match='backend="reference"'):
        grad.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_to_one_graph(backend: str) -> None:
    c = case(6, 12).to(torch.float32)
    expected, d_expected = gradients(c, backend=backend)
    y = torch.compile(highway, fullgraph=True, backend="aot_eager")(*c, backend=backend)
    torch.testing.assert_close(y, expected)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    for ours, theirs in zip(torch.autograd.grad(y, c.tensors(), grad), d_expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(3)}, r"x must have shape \[N, W\]"),
        ({"x": torch.zeros(3, 40, dtype=torch.int64)}, "x must hold floating-point numbers"),
        ({"x": torch.zeros(3, 40).double()}, "must share one device and dtype"),
        ({"x": torch.zeros(3, 39)}, r"weights\[0\] must have shape \[2W=78, W=39\]"),
        ({"biases": [torch.zeros(80)]}, "one tensor per layer each; got 2 and 1"),
        ({"biases": [torch.zeros(80), torch.zeros(40)]}, r"biases\[1\] must have shape \[2W=80\]"),
        ({"projection_weight": torch.zeros(24, 39)}, r"projection_weight must have shape \[D, W=40\]"),
        ({"projection_weight": None}, "projection_bias was given without projection_weight"),
        ({"projection_bias": torch.zeros(23)}, r"projection_bias must have shape \[D=24\]"),
        ({"precision": "half"}, "precision must be one of"),
        ({"backend": "cuda"}, "backend must be one of auto, native, reference"),
    ],
)
def test_errors_name_the_argument(change: dict, message: str) -> None:
    with pytest.raises(ElmoFastError, match=message):
        highway(**{**case()._asdict(), **change})


def test_float64_with_rounded_operands_is_left_to_the_reference() -> None:
    c = case(3).to(torch.float64)
    with pytest.raises(ElmoFastError, match="float64"):
        highway(*c, precision="float16", backend="native")
    assert highway(*c, precision="float16", backend="reference").dtype == torch.float64
