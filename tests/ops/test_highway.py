"""highway: every backend against the definition in float64, with and without projection, all rows or a counted few."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, highway
from tests.ops.highway_cases import ALL, BACKENDS, Case, case, gradients
from tests.support.backends import backends, needs
from tests.support.tolerances import assert_no_worse

triton = pytest.mark.parametrize("backend", backends("highway", only="triton"))


def assert_matches_truth(c: Case, precision: str = "float32", backend: str = "native", **options) -> None:
    truth, d_truth = gradients(c.to(torch.float64), backend="reference", **options)
    torchs, d_torchs = gradients(c.to(torch.float32), precision=precision, backend="reference", **options)
    actual, d_ours = gradients(c.to(torch.float32), precision=precision, backend=backend, **options)
    assert_no_worse("y", actual, torchs, truth, precision)
    for i, (one, other, true) in enumerate(zip(d_ours, d_torchs, d_truth, strict=True)):
        assert_no_worse(f"gradient {i}", one, other, true, precision)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("rows", "width", "layers", "projection", "bias", "precision"),
    [
        (70, 64, 2, 64, True, "float32"),
        (67, 128, 1, 33, True, "bfloat16"),
        (129, 40, 2, 24, True, "float16"),
        (1, 33, 1, 7, False, "float32"),
        (3, 1, 3, 1, True, "float32"),
        (65, 100, 1, 0, True, "float16"),
        (20, 17, 0, 65, True, "float32"),
        (513, 8, 2, 3, True, "float32"),
    ],
)
def test_is_no_worse_than_torch(
    rows: int, width: int, layers: int, projection: int, bias: bool, precision: str, backend: str
) -> None:
    needs("highway", backend, precision)
    assert_matches_truth(case(rows, width, layers, projection, bias), precision, backend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bias_gradients_of_many_rows_are_sums_of_sums(dtype: torch.dtype) -> None:
    """Equal terms, which one chain of additions rounds in one direction: its error grows as the rows do."""
    c = case(4099, 4, 1, 70).to(dtype)
    grad = torch.full((4099, 70), 1 / 3, dtype=dtype)
    (actual,) = torch.autograd.grad(highway(*c, backend="native"), [c.projection_bias], grad)
    expected = grad[0].double() * 4099
    assert (actual.double() - expected).abs().max() <= 64 * torch.finfo(dtype).eps * expected.max()


@pytest.mark.parametrize("backend", ALL)
def test_the_gate_carries_and_the_first_rows_transform(backend: str) -> None:
    """By hand: an open gate returns x, a closed one relu of the first W rows' product."""
    x = torch.tensor([[1.0, -2.0]])
    weight = torch.cat([torch.tensor([[3.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 2)])
    opened = highway(x, [weight], [torch.tensor([0.0, 0.0, 100.0, 100.0])], backend=backend)
    closed = highway(x, [weight], [torch.tensor([0.0, 0.0, -100.0, -100.0])], backend=backend)
    torch.testing.assert_close(opened, x)
    torch.testing.assert_close(closed, torch.tensor([[3.0, 0.0]]))


@pytest.mark.parametrize("backend", ALL)
def test_a_transform_of_exactly_0_passes_no_gradient(backend: str) -> None:
    """As torch's relu, of units that nothing reaches: the gate passes half of theirs."""
    x, weight = torch.ones(3, 4, requires_grad=True), torch.zeros(8, 4)
    bias = torch.zeros(8, requires_grad=True)
    highway(x, [weight], [bias], backend=backend).sum().backward()
    assert bias.grad.tolist() == [0.0] * 4 + [0.75] * 4
    assert torch.equal(x.grad, torch.full((3, 4), 0.5))


@pytest.mark.parametrize("backend", ALL)
def test_no_layers_and_no_projection_is_a_copy(backend: str) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    y = highway(x, [], [], backend=backend)
    assert torch.equal(y, x)
    grad = torch.randn(4, 3).t()
    assert torch.equal(torch.autograd.grad(y, x, grad)[0], grad)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounding_spares_what_the_gate_carries(precision: str, backend: str) -> None:
    """Through open gates x passes with all its digits, whatever the products are rounded to; so does its gradient."""
    needs("highway", backend, precision)
    x = torch.randn(5, 8, requires_grad=True)
    bias = torch.cat([torch.zeros(8), torch.full((8,), 100.0)])
    y = highway(x, [torch.randn(16, 8)] * 2, [bias] * 2, precision=precision, backend=backend)
    torch.testing.assert_close(y, x, rtol=1e-6, atol=1e-6)
    grad = torch.randn(5, 8)
    torch.testing.assert_close(torch.autograd.grad(y, x, grad)[0], grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize(
    ("count", "projection", "precision"),
    [(0, 24, "float32"), (1, 0, "float32"), (64, 24, "float16"), (69, 24, "bfloat16"), (69, 0, "float32")],
)
def test_rows_that_do_not_count(count: int, projection: int, precision: str, backend: str) -> None:
    """The others are as in a call without these; for any x and arriving gradient, these are 0 and pass none."""
    needs("highway", backend, precision)
    c, n = case(projection=projection).to(torch.float32), torch.tensor(count)
    few = Case(c.x.detach()[:count].requires_grad_(), *c[1:])
    options = {"precision": precision, "backend": backend}
    c.x.data[count:] = torch.nan
    y, reference = highway(*c, count=n, **options), highway(*few, **options)
    torch.testing.assert_close(y[:count], reference, rtol=1e-5, atol=1e-5)
    assert y[count:].eq(0).all()
    grad = torch.randn_like(y)
    grad[count:] = torch.nan
    dx, *others = torch.autograd.grad(y, c.tensors(), grad)
    dx_wanted, *others_wanted = torch.autograd.grad(reference, few.tensors(), grad[:count])
    assert dx[count:].eq(0).all()
    close = {"rtol": 1e-5, "atol": 1e-4 if precision == "float32" else 2e-2}  # other strips
    torch.testing.assert_close(dx[:count], dx_wanted, **close)
    for actual, expected in zip(others, others_wanted, strict=True):
        torch.testing.assert_close(actual, expected, **close)


@pytest.mark.parametrize("backend", ALL)
def test_count_without_layers(backend: str) -> None:
    """Alone, or with a projection."""
    for projection in (0, 5):
        c = case(6, 4, 0, projection).to(torch.float32)
        y, (dx, *_) = gradients(c, backend=backend, count=torch.tensor(2))
        whole, (dx_whole, *_) = gradients(c, backend=backend)
        for actual, expected in ((y, whole), (dx, dx_whole)):
            torch.testing.assert_close(actual[:2], expected[:2])
            assert actual[2:].eq(0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=20, deadline=None)
@given(count=st.integers(-(2**63), 2**63 - 1), rows=st.integers(0, 5))
@example(count=2**31 + 2, rows=5)
@example(count=-(2**32) + 2, rows=5)
def test_any_count_is_kept_within_the_rows(backend: str, count: int, rows: int) -> None:
    """No number reaches memory that is not x's."""
    c = case(rows, 4, 1, 0)
    y = highway(*c, backend=backend, count=torch.tensor(count))
    n = max(0, min(count, rows))
    assert torch.equal(y[:n], highway(*c, backend=backend)[:n])
    assert y[n:].eq(0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("bias", "precision"), [(-12.0, "float32"), (12.0, "float32"), (12.0, "float16")])
def test_gradients_of_saturated_gates(bias: float, precision: str, backend: str) -> None:
    """If a gate is nearly open, backward needs its distance from 1, which a saved gate would not show."""
    needs("highway", backend, precision)
    assert_both_parts_have_digits(bias, precision, backend)


def assert_both_parts_have_digits(bias: float, precision: str, backend: str) -> None:
    """No worse than torch, and both parts of a weight's gradient, of which one may be far smaller, are close."""
    c = case(40, 24, 1, 0)
    c.biases[0][24:] = bias
    assert_matches_truth(c, precision, backend)
    truth = gradients(c.to(torch.float64), backend="reference")[1][1]
    actual = gradients(c.to(torch.float32), precision=precision, backend=backend)[1][1]
    close = 2e-2 if backend == "native" else {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}[precision]
    for part in (slice(0, 24), slice(24, 48)):  # the transform's weight and the gate's
        assert (actual[part] - truth[part]).norm() < close * truth[part].norm()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_gates_open_and_closed_for_good(precision: str, backend: str) -> None:
    """Their remainders underflow; which of both they are must not be lost."""
    needs("highway", backend, precision)
    c = case(20, 12, 1, 0)
    c.biases[0][12:18], c.biases[0][18:] = -1e4, 1e4
    assert_matches_truth(c, precision, backend)


@triton
def test_products_beyond_float16(backend: str) -> None:
    """Pre-activations are saved in float16; those past its range neither become infinite nor NaN."""
    c = case(5, 4, 1, 0)
    c.biases[0][:4], c.biases[0][4:] = 1e5, torch.tensor([-1e5, 1e5, 0.0, -3.0])
    y, grads = gradients(c.to(torch.float32), precision="float16", backend=backend)
    assert y.isfinite().all()
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(3, 39)}, r"weights\[0\] must have shape \[2W=78, W=39\]"),
        ({"biases": [torch.zeros(80)]}, "one tensor per layer each; got 2 and 1"),
        ({"projection_weight": None}, "projection_bias needs projection_weight"),
        ({"projection_bias": torch.zeros(23)}, r"projection_bias must have shape \[D=24\]"),
        ({"count": torch.tensor([3])}, r"count must have shape \[\]; got shape \(1,\), int64, cpu"),
        ({"count": torch.tensor(3.0)}, "count must be int64"),
    ],
)
def test_errors_name_the_argument(change, message):
    with pytest.raises(ElmoFastError, match=message):
        highway(**case()._asdict() | change)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_is_the_same_in_any_batch(precision: str) -> None:
    """Bit-equal however many rows there are, so that encoding unique words only changes no bit. On the CPU: the GPU's
    products are cuBLAS's."""
    needs("highway", "native", precision)
    c = case(600, 96)
    everything = highway(*c, precision=precision, backend="native")
    for rows in (1, 2, 7, 63, 64, 130, 513):
        assert torch.equal(highway(c.x[:rows], *c[1:], precision=precision, backend="native"), everything[:rows])
    assert torch.equal(highway(c.x[5:90], *c[1:], precision=precision, backend="native"), everything[5:90])
