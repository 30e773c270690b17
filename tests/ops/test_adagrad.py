"""adagrad_: dense updates in place against float64, versions, opcheck."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import (
    _triton,
    adagrad_,
    adagrad_rows_,
    clip_scale,
    merged_square_norm,
    row_order,
    square_norm,
)
from tests.kernels.launch import recording
from tests.ops.adagrad_cases import every, tensors, triton, written_out
from tests.support.backends import backends
from tests.support.tolerances import assert_close, assert_no_worse


def copies(tensors, dtype=torch.float32):
    return [tensor.detach().to(dtype, copy=True) for tensor in tensors]


def check_update(backend, weights, sums, gradients, learning_rate, scale):
    """One update, no worse than the formula in float32 against that in float64; gradients are as before."""
    factor = 1.0 if scale is None else scale.item()
    truth = written_out(*(copies(each, torch.float64) for each in (weights, sums, gradients)), learning_rate, factor)
    plain = written_out(weights, sums, gradients, learning_rate, factor)
    before = copies(gradients)
    adagrad_(weights, sums, gradients, learning_rate, scale, backend=backend)
    for name, actual, torchs, expected in zip("wa", (weights, sums), plain, truth, strict=True):
        for k, each in enumerate(zip(actual, torchs, expected, strict=True)):
            assert_no_worse(f"{name}{k}", *each, "float32")
    assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))


@every
@pytest.mark.parametrize("scale", [None, 0.3])
def test_dense_updates(backend, scale):
    """Several steps in a row on tensors of all sizes."""
    weights, sums, _ = tensors()
    for _ in range(2):
        gradients = tensors()[2]
        check_update(backend, weights, sums, gradients, 0.2, None if scale is None else torch.tensor(scale))


@every
def test_a_learning_rate_in_a_tensor_gives_the_same_bits(backend):
    """Read at each call, in float32 as the number is; of dense tensors and of rows."""
    actual = []
    for in_tensor in (False, True):
        torch.manual_seed(0)
        weights, sums, gradients = tensors(shapes=[(40, 33), (5,)])
        rate = torch.full((), 0.7)
        for number in (0.2, 0.05):
            step_size = rate.fill_(number) if in_tensor else number
            adagrad_(weights, sums, gradients, step_size, torch.tensor(0.3), backend=backend)
            adagrad_rows_(weights[0], sums[0], torch.tensor([3, 1, 3]), gradients[0][:3], step_size, backend=backend)
        actual.append([*weights, *sums])
    assert all(torch.equal(a, b) for a, b in zip(*actual, strict=True))


@pytest.mark.skipif(_triton.WHY_NOT is not None, reason=str(_triton.WHY_NOT))
def test_a_learning_rate_in_a_tensor_runs_the_kernels_of_a_number():
    """Kernels are loaded by the first, eager step: a driver may refuse to load one within a captured one."""
    actual = []
    for rate in (0.2, torch.tensor(0.2)):
        weights, sums, gradients = tensors(shapes=[(40, 33), (5,)])
        with recording() as launches:
            adagrad_(weights, sums, gradients, rate, torch.tensor(0.3), backend="triton")
            adagrad_rows_(weights[0], sums[0], torch.tensor([3, 1]), gradients[0][:2], rate, backend="triton")
        kinds = [(each.kernel, list(map(type, each.arguments)), each.constants) for each in launches]
        actual.append(kinds)
    assert len(actual[0]) == 3
    assert actual[0] == actual[1]


@every
def test_strided_gradients_and_few_tensors(backend):
    weights, sums, _ = tensors(shapes=[(40, 70)])
    check_update(backend, weights, sums, [torch.randn(70, 40).t()], 0.1, torch.tensor(2.0))
    check_update(backend, weights, sums, [torch.randn(40, 140)[:, ::2]], 0.1, None)
    check_update(backend, weights, sums, [torch.randn(70).expand(40, 70)], 0.1, None)
    adagrad_([], [], [], 0.1, backend=backend)
    if backend != "triton":
        check_update(backend, [torch.randn(70, 40).t()], sums, [torch.randn(40, 70)], 0.1, None)
        check_update(backend, weights, [torch.rand(70, 40).t() + 1], [torch.randn(40, 70)], 0.1, None)
    check_update(backend, [torch.ones(0, 3)], [torch.ones(0, 3)], [torch.ones(0, 3)], 0.1, None)


@every
@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 8191])
def test_nothing_around_a_tensor_is_written_or_counted(backend, size):
    """Weight, sum and gradient lie within larger buffers, whose other parts keep their bits and are not in the norm."""
    buffers = [torch.full((16 + size + 16,), 3.0) for _ in range(3)]
    weight, sums, gradient = (buffer[16:-16] for buffer in buffers)
    adagrad_([weight], [sums], [gradient], 0.5, backend=backend)
    for buffer in buffers[:2]:
        assert (buffer[:16] == 3).all()
        assert (buffer[-16:] == 3).all()
        assert (buffer[16:-16] != 3).all()
    assert square_norm([gradient], backend=backend).item() == pytest.approx(9 * size, rel=1e-6)


@every
def test_large_and_small_gradients(backend):
    """If g is huge the step is the learning rate; if it is tiny it is lr g / √a and `a` does not move."""
    gradients = [torch.tensor([1e18, -1e18, 1e-18, -1e-30, 0.0, -0.0])]
    weights, sums = [torch.zeros(6)], [torch.ones(6)]
    adagrad_(weights, sums, gradients, 0.5, backend=backend)
    assert_close("w", weights[0][:2], torch.tensor([-0.5, 0.5]))
    torch.testing.assert_close(weights[0][2:], torch.tensor([-5e-19, 5e-31, 0.0, 0.0]), atol=0, rtol=1e-5)
    assert sums[0][2:].tolist() == [1.0] * 4


native = pytest.mark.parametrize("backend", [p for p in backends("adagrad") if p.values == ("native",)])


@every
def test_versions_count_up(backend):
    """So that autograd and cached copies see that a tensor was written."""
    weights, sums, gradients = tensors(shapes=[(6, 2), (3,)])
    adagrad_(weights, sums, gradients, 0.2, backend=backend)
    assert all(tensor._version for tensor in weights + sums)
    table, accumulator = torch.ones(6, 2), torch.ones(6, 2)
    adagrad_rows_(table, accumulator, torch.tensor([1]), torch.ones(1, 2), 0.2, backend=backend)
    assert table._version
    assert accumulator._version
    leaf = torch.nn.Parameter(torch.ones(3))
    product = leaf * leaf
    adagrad_([leaf], [torch.ones(3)], [torch.ones(3)], 0.2, backend=backend)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@triton
def test_opcheck(backend):
    ops = getattr(torch.ops, _triton.NAMESPACE)
    weights, sums, gradients = tensors(shapes=[(30, 7), (5,)])
    scale, rate = torch.tensor(0.5), torch.tensor(0.3)
    for each in (None, scale):
        torch.library.opcheck(ops.adagrad_.default, (weights, sums, gradients, rate, each))
    ids = torch.randint(0, 30, (40,))
    rows, order = torch.randn(40, 7), row_order(ids, 30)
    torch.library.opcheck(ops.adagrad_rows_.default, (weights[0], sums[0], *order, rows, rate, scale))
    torch.library.opcheck(ops.square_norm.default, (gradients,))
    torch.library.opcheck(ops.merged_square_norm.default, (*order, rows, 30))


@native
def test_opcheck_of_native(backend):
    ops = torch.ops.elmo_fast
    weights, sums, _ = tensors(shapes=[(30, 7)])
    rate = torch.tensor(0.2)
    for scale in (None, torch.tensor(0.5)):
        arguments = weights[0], sums[0], torch.tensor([2, 7, 29]), None, torch.randn(3, 7), rate, scale
        torch.library.opcheck(ops.adagrad_rows_.default, arguments)


@triton
def test_compiles_without_a_break(backend):
    """Norm, clip and both updates in one graph."""

    def f(weight, sums, gradient, table, accumulator, ids, rows):
        square = square_norm([gradient], backend=backend) + merged_square_norm(ids, rows, 30, backend=backend)
        scale = clip_scale(square.sqrt(), 1.0)
        adagrad_([weight], [sums], [gradient * 2], 0.2, scale, backend=backend)
        adagrad_rows_(table, accumulator, ids, rows, 0.2, scale, backend=backend)
        return square

    arguments = [torch.randn(50), torch.ones(50), torch.randn(50), torch.randn(30, 4), torch.ones(30, 4)]
    arguments += [torch.randint(0, 30, (40,)), torch.randn(40, 4)]
    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        mine = [tensor.clone() for tensor in arguments]
        results.append([g(*mine), *mine])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@triton
def test_only_contiguous_tensors_are_written_in_place(backend):
    weight, sums = torch.ones(3, 4).t(), torch.ones(4, 3)
    with pytest.raises(ElmoFastError, match=r"parameters must be contiguous.*strides \(1, 4\)"):
        adagrad_([weight], [sums], [torch.ones(4, 3)], 0.2, backend=backend)
    with pytest.raises(ElmoFastError, match="accumulators must be contiguous"):
        adagrad_([sums], [weight], [torch.ones(4, 3)], 0.2, backend=backend)
    with pytest.raises(ElmoFastError, match="table must be contiguous"):
        adagrad_rows_(weight, sums, torch.tensor([0]), torch.ones(1, 3), 0.2, backend=backend)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"accumulators": []}, "must have the same length; got 1, 0 and 1"),
        ({"accumulators": [torch.ones(3)]}, "accumulators must be shaped like parameters"),
        ({"gradients": [torch.ones(3, 2)]}, "gradients must be shaped like parameters"),
        ({"scale": torch.ones(1)}, r"scale must be one number, \[\], on cpu"),
        ({"scale": torch.ones((), dtype=torch.float64)}, "scale must be float32"),
        ({"learning_rate": torch.ones(1)}, r"learning_rate must be one number, \[\], on cpu"),
    ],
)
def test_bad_dense_arguments_are_refused(change, expected):
    arguments = {
        "parameters": [torch.ones(2, 3)],
        "accumulators": [torch.ones(2, 3)],
        "gradients": [torch.ones(2, 3)],
        "learning_rate": 0.1,
    }
    with pytest.raises(ElmoFastError, match=expected):
        adagrad_(**arguments | change)
