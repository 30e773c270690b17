"""highway as an op: strides, threads, batches, saved tensors, compilation, opcheck, and what it refuses."""

import pytest
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import PRECISIONS, _native, highway
from tests.backends import needs_rows_alone
from tests.ops.highway_cases import ALL, BACKENDS, Case, case, fixed, gradients, needs_triton, skip_unless_served
from tests.ops.saved import outputs_of
from tests.threads import with_one_and_two


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("projection", [24, 0])
def test_no_rows(backend: str, projection: int, precision: str) -> None:
    skip_unless_served(backend, precision=precision)
    c = case(rows=0, projection=projection).to(torch.float32)
    y, grads = gradients(c, backend=backend, precision=precision)
    assert y.shape == (0, projection or 40)
    assert all(g.shape == t.shape and g.eq(0).all() for g, t in zip(grads, c.tensors(), strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_is_the_same_in_any_batch(precision: str, backend: str) -> None:
    """Bit-equal whatever the other rows, so that encoding unique words only changes no bit. On the GPU the layers' part
    of it: the projection is a product of cuBLAS."""
    skip_unless_served(backend, precision=precision)
    needs_rows_alone(backend)
    few = backend == "triton"  # the interpreter is slow
    c = case(150 if few else 600, 70 if few else 96, projection=0 if few else 24)
    options = {"precision": precision, "backend": backend}
    everything = highway(*c, **options)
    for rows in (1, 17, 130) if few else (1, 2, 7, 63, 64, 130, 513):
        assert torch.equal(highway(c.x[:rows], *c[1:], **options), everything[:rows])
    assert torch.equal(highway(c.x[5:90], *c[1:], **options), everything[5:90])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_change_nothing(precision: str) -> None:
    c = case(130, 96).to(torch.float32)
    (one, d_one), (two, d_two) = with_one_and_two(lambda: gradients(c, precision=precision))
    assert torch.equal(one, two)
    assert all(torch.equal(a, b) for a, b in zip(d_one, d_two, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("projection", [24, 0])
def test_saving_for_backward_changes_nothing(precision: str, projection: int, backend: str) -> None:
    skip_unless_served(backend, precision=precision)
    c = case(projection=projection).to(torch.float32)
    with torch.no_grad():
        without = highway(*c, precision=precision, backend=backend)
    assert torch.equal(without, highway(*c, precision=precision, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_strided_views(precision: str, backend: str) -> None:
    c = case(20, 12)

    def strided(t: Tensor) -> Tensor:
        return torch.stack([t, t], -1)[..., 0]

    views = Case(
        strided(c.x), [w.t().contiguous().t() for w in c.weights], [strided(b) for b in c.biases], *map(strided, c[3:])
    )
    assert not any(t.is_contiguous() for t in views.tensors())
    parameters = [t.requires_grad_() for t in views.tensors()]
    y = highway(*views, precision=precision, backend=backend)
    plain = c.to(torch.float32)
    wanted = highway(*plain, precision=precision, backend=backend)
    assert torch.equal(y, wanted)
    for ours, theirs in zip(
        torch.autograd.grad(y.sum(), parameters), torch.autograd.grad(wanted.sum(), plain.tensors()), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chosen", [[0], [1], [2, 5], [3], [5], [6], [0, 4], [1, 2, 3, 4, 5, 6]])
def test_some_gradients_only(chosen: list[int], backend: str) -> None:
    """Any subset of x, two weights, two biases and the projection's two tensors may be asked for."""
    c = case(12).to(torch.float32)
    _, everything = gradients(c, backend=backend)
    for i, tensor in enumerate(c.tensors()):
        tensor.requires_grad_(i in chosen)
    y = highway(*c, backend=backend)
    y.backward(fixed(y.shape).to(y))
    for i, tensor in enumerate(c.tensors()):
        assert torch.equal(tensor.grad, everything[i]) if i in chosen else tensor.grad is None


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


@needs_triton
@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("projection", [6, 0])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_opcheck_triton(backend: str, projection: int, precision: str) -> None:
    c, count, ops = case(4, 6, projection=projection), torch.tensor(3), torch.ops.elmo_fast_triton
    for save in (True, False):
        # What is saved of rows that do not count is never written, nor read; opcheck would compare it.
        inputs = (*(c.to(torch.float32) if save else c), None if save else count, precision, save)
        torch.library.opcheck(ops.highway.default, inputs)
    y, *saved = ops.highway(*c, count, precision, True)
    for needs in ((True, True), (True, False), (False, True)):
        inputs = (torch.randn_like(y), c.x, *saved, c.weights, c.projection_weight, count, precision, *needs)
        torch.library.opcheck(ops.highway_backward.default, inputs)


@needs_triton
@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_the_same_bits_again(precision: str, backend: str) -> None:
    c = case(130).to(torch.float32)
    (y, grads), (again, grads_again) = (gradients(c, precision=precision, backend=backend) for _ in range(2))
    assert torch.equal(y, again)
    assert all(torch.equal(a, b) for a, b in zip(grads, grads_again, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_changed_weight_is_seen(backend: str) -> None:
    """16-bit copies are kept from call to call."""
    c = case(5)
    before = highway(*c, precision="float16", backend=backend)
    c.weights[0].mul_(2)
    after = highway(*c, precision="float16", backend=backend)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, highway(*c, precision="float16", backend="reference"), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivative_is_refused(backend: str) -> None:
    c = case(5).to(torch.float32)
    (grad,) = torch.autograd.grad(highway(*c, backend=backend).sum(), c.x, create_graph=True)
    with pytest.raises(RuntimeError, match='backend="reference"'):
        grad.sum().backward()


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("count", [None, 4])
def test_compiles_to_one_graph(backend: str, count: int | None) -> None:
    c = case(6, 12).to(torch.float32)
    options = {"backend": backend, "count": None if count is None else torch.tensor(count)}
    expected, d_expected = gradients(c, **options)
    y = torch.compile(highway, fullgraph=True, backend="aot_eager")(*c, **options)
    torch.testing.assert_close(y, expected)
    grad = fixed(y.shape).to(y)
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
        ({"count": torch.tensor([3])}, r"count must have shape \[\]; got shape \(1,\), int64, cpu"),
        ({"count": torch.tensor(3.0)}, "count must be int64"),
        ({"backend": "cuda"}, "backend must be one of auto, native, triton, reference"),
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


@pytest.mark.skipif(_native.WHY_NOT is not None, reason=str(_native.WHY_NOT))
def test_activations_are_kept_only_where_a_gradient_is_wanted():
    c = case(rows=5, width=8)

    def kept(asked):
        return outputs_of("highway", lambda: highway(*asked, backend="native"))[1]

    assert kept(c.to(torch.float32)).shape == (2, 3, 5, 8)
    assert kept(c).numel() == 0
    with torch.no_grad():
        assert kept(c.to(torch.float32)).numel() == 0
