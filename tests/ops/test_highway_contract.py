"""highway as an op: strides, threads, batches, saved tensors, compilation, opcheck, and what it refuses."""

import pytest
import torch
from torch import Tensor

from elmo_fast.ops import PRECISIONS, highway
from tests.ops.encoder_op import EncoderOp
from tests.ops.highway_cases import BACKENDS, Case, case, gradients, needs_triton, skip_unless_served


class TestHighway(EncoderOp):
    """x, two weights, two biases and the projection's two tensors, or none."""

    op, case, gradients = staticmethod(highway), staticmethod(case), staticmethod(gradients)
    variants = ({"projection": 24}, {"projection": 0})
    small = {}
    kept = (2, 3, 5, 40)
    subsets = [[0], [1], [2, 5], [3], [5], [6], [0, 4], [1, 2, 3, 4, 5, 6]]
    refusals = [
        ({"x": torch.zeros(3)}, r"x must have shape \[N, W\]"),
        ({"x": torch.zeros(3, 40, dtype=torch.int64)}, "x must hold floating-point numbers"),
        ({"x": torch.zeros(3, 40).double()}, "must share one device and dtype"),
        ({"x": torch.zeros(3, 39)}, r"weights\[0\] must have shape \[2W=78, W=39\]"),
        ({"biases": [torch.zeros(80)]}, "one tensor per layer each; got 2 and 1"),
        ({"biases": [torch.zeros(80), torch.zeros(40)]}, r"biases\[1\] must have shape \[2W=80\]"),
        ({"projection_weight": torch.zeros(24, 39)}, r"projection_weight must have shape \[D, W=40\]"),
        ({"projection_weight": None}, "projection_bias needs projection_weight"),
        ({"projection_bias": torch.zeros(23)}, r"projection_bias must have shape \[D=24\]"),
        ({"precision": "half"}, "precision must be one of"),
        ({"count": torch.tensor([3])}, r"count must have shape \[\]; got shape \(1,\), int64, cpu"),
        ({"count": torch.tensor(3.0)}, "count must be int64"),
        ({"backend": "cuda"}, "backend must be one of auto, native, triton, reference"),
    ]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_is_the_same_in_any_batch(precision: str) -> None:
    """Bit-equal however many rows there are, so that encoding unique words only changes no bit. On the CPU: the GPU's
    products are cuBLAS's."""
    skip_unless_served("native", precision=precision)
    c = case(600, 96)
    everything = highway(*c, precision=precision, backend="native")
    for rows in (1, 2, 7, 63, 64, 130, 513):
        assert torch.equal(highway(c.x[:rows], *c[1:], precision=precision, backend="native"), everything[:rows])
    assert torch.equal(highway(c.x[5:90], *c[1:], precision=precision, backend="native"), everything[5:90])


@needs_triton
@pytest.mark.parametrize("backend", ["triton"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_what_others_hold(precision: str, backend: str) -> None:
    """Nor does its gradient, where float16's scale stays."""
    skip_unless_served(backend, precision=precision)
    c = case(150, 70).to(torch.float32)
    other = c._replace(x=torch.cat([c.x.detach()[:90], 3 * torch.randn(60, 70)]).requires_grad_())
    (y, grads), (y_other, grads_other) = (gradients(each, precision=precision, backend=backend) for each in (c, other))
    assert torch.equal(y[:90], y_other[:90])
    assert torch.equal(grads[0][:90], grads_other[0][:90])


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
