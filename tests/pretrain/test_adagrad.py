"""AdaGrad and the clip against plain dense formulas written out here.

backend "auto" is the CPU's own way; with a backend named everything goes as on a GPU: norm and clip stay on the device.
"""

import copy
import math
import pickle

import pytest
import torch
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import adagrad_, adagrad_rows_, row_order, square_norm
from elmo_fast.pretrain import optimizer as module
from elmo_fast.pretrain.optimizer import AdaGrad, clip_and_step
from tests.backends import backends, device_of

DEVICE_WAYS = backends("adagrad", reference=True)
every = pytest.mark.parametrize("backend", ["auto", *DEVICE_WAYS])
as_on_a_gpu = pytest.mark.parametrize("backend", DEVICE_WAYS)


@pytest.fixture(autouse=True)
def on_its_device(request):
    callspec = getattr(request.node, "callspec", None)
    with torch.device(device_of((callspec.params if callspec else {}).get("backend", "auto"))):
        yield


def sparse(ids: list[int], rows: torch.Tensor, size: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([ids]), rows, (size, *rows.shape[1:]), check_invariants=True)


def dense_adagrad(weight, accumulator, gradient, learning_rate):
    """The formula on everything: a += g²; w -= lr·g / √a."""
    accumulator = accumulator + gradient**2
    return weight - learning_rate * gradient / accumulator.sqrt(), accumulator


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 3), (7,)])
def test_several_steps_equal_the_dense_formula(backend, dtype, shape):
    """Rows that repeat within a step are summed before squaring; rows that are absent do not move at all."""
    if backend == "triton" and dtype == torch.float64:
        pytest.skip("the Triton kernels take float32 tensors")
    size = shape[0]
    start = torch.randn(shape, dtype=dtype)
    table, matrix = Parameter(start.clone()), Parameter(start.clone())
    optimizer = AdaGrad([table, matrix], learning_rate=0.3, initial_accumulator_value=0.5, backend=backend)
    weight, accumulator = start.clone(), torch.full(shape, 0.5, dtype=dtype)
    for ids in ([3, 1, 3, 3], [1], [4, 4, 0]):
        rows = torch.randn((len(ids), *shape[1:]), dtype=dtype)
        table.grad = sparse(ids, rows, size)
        matrix.grad = table.grad.to_dense()
        weight, accumulator = dense_adagrad(weight, accumulator, matrix.grad, 0.3)
        optimizer.step()
    torch.testing.assert_close(table.data, weight)
    torch.testing.assert_close(matrix.data, weight)
    torch.testing.assert_close(optimizer.state[table]["sum"], accumulator)
    assert torch.equal(table.data[2], start[2])
    assert torch.equal(optimizer.state[table]["sum"][2], torch.full(shape[1:], 0.5, dtype=dtype))


@every
def test_gradients_of_two_uses_of_one_table_are_merged_before_squaring(backend):
    """Both directions share the softmax table: their rows of one id make one update with (g1 + g2)²."""
    table = Parameter(torch.randn(4, 2))
    start = table.detach().clone()
    forward, backward = torch.randn(2, 2), torch.randn(2, 2)
    torch.nn.functional.embedding(torch.tensor([1, 2]), table, sparse=True).backward(forward)
    torch.nn.functional.embedding(torch.tensor([2, 3]), table, sparse=True).backward(backward)
    AdaGrad([table], backend=backend).step()
    gradient = torch.stack([torch.zeros(2), forward[0], forward[1] + backward[0], backward[1]])
    wanted, _ = dense_adagrad(start, torch.ones(4, 2), gradient, 0.2)
    torch.testing.assert_close(table.data, wanted)


@every
def test_gradients_survive_a_step_and_the_accumulator_is_in_the_state_dict(backend):
    table, matrix = Parameter(torch.ones(3, 2)), Parameter(torch.ones(2))
    optimizer = AdaGrad([table, matrix], backend=backend)
    table.grad, matrix.grad = sparse([1], torch.ones(1, 2), 3), torch.ones(2)
    optimizer.step()
    assert table.grad is not None
    assert table.grad.is_sparse
    assert optimizer.state_dict()["state"][0]["sum"].tolist() == [[1, 1], [2, 2], [1, 1]]


@every
def test_the_clip_is_over_everything_with_rows_merged(backend):
    """norm = sqrt(3² + 4² + (1 + 1)² + 6²): both rows of id 1 are summed; the factor is clip / max(norm, clip)."""
    norm = (9 + 16 + 4 + 36) ** 0.5
    for max_norm, factor in ((2.0, 2 / norm), (10.0, 1.0)):
        table, matrix, unused = (Parameter(torch.zeros(*shape)) for shape in ((3, 1), (2,), (2,)))
        table.grad = sparse([1, 1, 2], torch.tensor([[1.0], [1.0], [6.0]]), 3)
        matrix.grad = torch.tensor([3.0, 4.0])
        found = clip_and_step(AdaGrad([table, matrix, unused], 1.0, backend=backend), [table, matrix, unused], max_norm)
        assert isinstance(found, float if backend == "auto" else torch.Tensor)
        assert float(found) == pytest.approx(norm)
        for parameter, gradient in ((matrix, [3.0, 4.0]), (table, [[0.0], [2.0], [6.0]]), (unused, [0.0, 0.0])):
            gradient = torch.tensor(gradient)
            moved, _ = dense_adagrad(torch.zeros_like(gradient), torch.ones_like(gradient), gradient * factor, 1.0)
            torch.testing.assert_close(parameter.data, moved)


def trained(backend, **more):
    """A table and two dense parameters with gradients, rows of one word twice, and their optimizer."""
    torch.manual_seed(5)
    table, matrix, bias = Parameter(torch.randn(6, 3)), Parameter(torch.randn(40, 50)), Parameter(torch.randn(6))
    ids = [4, 1, 4, 0]
    table.grad, bias.grad = sparse(ids, torch.randn(4, 3), 6), sparse(ids, torch.randn(4), 6)
    matrix.grad = torch.randn(40, 50)
    parameters = [table, matrix, bias]
    return parameters, AdaGrad(parameters, backend=backend, **more)


@every
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_and_step_is_a_clip_and_a_step(backend, max_norm):
    """The weights and norm of dense gradients that torch clips; gradients stay as they were."""
    (parameters, optimizer), (others, other) = trained(backend), trained("auto")
    before = [p.grad.to_dense().clone() for p in parameters]
    norm = clip_and_step(optimizer, parameters, max_norm)
    for parameter in others:
        parameter.grad = parameter.grad.to_dense()
    wanted = torch.nn.utils.clip_grad_norm_(others, max_norm)
    other.step()
    assert float(norm) == pytest.approx(float(wanted), rel=1e-6)
    assert wanted > 1.0
    for ours, theirs in zip(parameters, others, strict=True):
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(optimizer.state[ours]["sum"], other.state[theirs]["sum"])
        assert optimizer.state[ours]["step"] == 1
    assert all(torch.equal(p.grad.to_dense(), g) for p, g in zip(parameters, before, strict=True))
    assert parameters[0].grad.is_coalesced() == (backend == "auto")


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_another_optimizer_is_clipped_and_stepped_too(max_norm):
    (parameters, _), (others, _) = trained("auto"), trained("auto")
    for parameter in others:
        parameter.grad = parameter.grad.to_dense()
    norm = clip_and_step(torch.optim.SGD(parameters, lr=0.1), parameters, max_norm)
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(others, max_norm)))
    torch.optim.SGD(others, lr=0.1).step()
    torch.testing.assert_close(parameters, others)


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_the_cpu_is_the_ops_called_by_hand(max_norm):
    """square_norm of each gradient, rows merged; then the updates with the factor, or without one within the clip."""
    (parameters, optimizer), (others, _) = trained("auto"), trained("auto")
    table, matrix, bias = others
    merged = [p.grad.coalesce() for p in (table, bias)]
    values = [merged[0].values(), matrix.grad, merged[1].values()]
    norm = math.sqrt(sum(square_norm([each]).item() for each in values))
    scale = torch.tensor(max_norm / norm) if norm > max_norm else None
    sums = [torch.ones_like(p) for p in others]
    adagrad_([matrix], [sums[1]], [matrix.grad], 0.2, scale)
    for parameter, accumulator, gradient in ((table, sums[0], merged[0]), (bias, sums[2], merged[1])):
        adagrad_rows_(parameter, accumulator, gradient.indices()[0], gradient.values(), 0.2, scale)
    assert clip_and_step(optimizer, parameters, max_norm) == norm
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
    assert all(torch.equal(optimizer.state[p]["sum"], a) for p, a in zip(parameters, sums, strict=True))


def test_the_cpu_leaves_out_an_update_whose_norm_is_no_number():
    parameters, optimizer = trained("auto")
    parameters[1].grad[0, 1] = math.nan
    before = [p.detach().clone() for p in parameters]
    assert math.isnan(clip_and_step(optimizer, parameters, 0.5))
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))
    assert all(optimizer.state[p]["step"] == 0 for p in parameters)


@as_on_a_gpu
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_an_update_whose_norm_is_no_number_is_left_out_and_counted(backend, value, where):
    """Not one weight or sum changes; the next step goes on as if nothing had been."""
    (parameters, optimizer), (others, other) = trained(backend), trained(backend)
    gradient = parameters[where].grad
    (gradient._values() if gradient.is_sparse else gradient)[0, 1] = value
    before = [p.detach().clone() for p in parameters]
    assert not clip_and_step(optimizer, parameters, 0.5).isfinite()
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))
    assert all(torch.equal(optimizer.state[p]["sum"], torch.ones_like(p)) for p in parameters)
    assert optimizer.skipped.item() == 1
    for p, q in zip(parameters, others, strict=True):
        p.grad = q.grad
    assert clip_and_step(optimizer, parameters, 0.5) == clip_and_step(other, others, 0.5)
    assert all(torch.equal(p, q) for p, q in zip(parameters, others, strict=True))
    assert (optimizer.skipped.item(), other.skipped.item()) == (1, 0)


class NoWait(TorchDispatchMode):
    """Refuses what makes the host wait for a GPU: reading a number, shapes that depend on values."""

    WAITS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "coalesce", "equal", "is_nonzero")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        assert not any(name.lstrip("_").startswith(wait.lstrip("_")) for wait in self.WAITS), f"{name} waits"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", [p for p in DEVICE_WAYS if p.values != ("native",)])
def test_nothing_waits_for_the_device(backend):
    """Norm, clip, both kinds of update and the count of skipped ones."""
    parameters, optimizer = trained(backend)
    with NoWait():
        norm = clip_and_step(optimizer, parameters, 0.5)
    for wait in (float, bool, lambda x: x[x > 0], torch.Tensor.nonzero):
        with pytest.raises(AssertionError, match="waits"), NoWait():
            wait(norm)


@every
def test_a_state_saved_on_one_device_goes_on_on_another(backend):
    """state_dict of the CPU's way into a named backend's, and back."""
    (parameters, optimizer), (others, other) = trained(backend), trained("auto")
    for first, second, weights in ((optimizer, other, parameters), (other, optimizer, others)):
        clip_and_step(first, weights, 0.5)
        second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
        for p, q in zip(parameters, others, strict=True):
            assert torch.equal(optimizer.state[p]["sum"], other.state[q]["sum"])
            assert optimizer.state[p]["step"] == other.state[q]["step"]
    assert all((optimizer.state[p]["sum"] != 1).any() for p in parameters)
    assert set(optimizer.state_dict()["state"][0]) == {"step", "sum"}


@every
def test_a_copy_and_a_group_added_later_are_trained_too(backend):
    _, optimizer = trained(backend)
    added = [Parameter(torch.zeros(2)), Parameter(torch.zeros(3, 1))]
    added[0].grad, added[1].grad = torch.ones(2), sparse([1], torch.ones(1, 1), 3)
    optimizer.add_param_group({"params": added, "lr": 0.5})
    optimizer.step()
    torch.testing.assert_close(added[0].data, torch.full((2,), -0.5 / 2**0.5))
    torch.testing.assert_close(added[1].data, torch.tensor([[0.0], [-0.5 / 2**0.5], [0.0]]))
    copy.deepcopy(optimizer).step(scale=torch.tensor(1.0))
    assert optimizer.skipped is None


@every
def test_settings_of_another_optimizer_are_refused(backend):
    _, optimizer = trained(backend)
    (foreign := trained("auto")[1]).param_groups[0].update(eps=1e-10, weight_decay=0.1)
    optimizer.load_state_dict(foreign.state_dict())
    with pytest.raises(ElmoFastError, match="AdaGrad: eps and weight_decay must be 0 or false"):
        optimizer.step()


@every
def test_no_gradient_is_no_step(backend):
    parameters, optimizer = trained(backend)
    optimizer.zero_grad()
    before = [p.detach().clone() for p in parameters]
    assert float(clip_and_step(optimizer, parameters, 0.5)) == 0.0
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))


def test_another_optimizer_leaves_out_an_update_that_is_no_number():
    """AdamW would move the weights by its momentum even on gradients of zero."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter], 0.1)
    parameter.grad = torch.ones(3)
    clip_and_step(optimizer, [parameter], 1.0)
    before = parameter.detach().clone()
    assert not before.equal(torch.ones(3))
    parameter.grad = torch.tensor([1.0, float("nan"), 1.0])
    assert math.isnan(clip_and_step(optimizer, [parameter], 1.0))
    assert parameter.equal(before)


@as_on_a_gpu
def test_the_ids_of_one_table_are_sorted_once(backend, monkeypatch):
    """A table and its bias, which have the same rows, beside a table with others: the same bits as with a sort each."""
    ids, others, sorts = [4, 1, 4, 0], [2, 5, 1, 2], []
    values = torch.randn(4, 3), torch.randn(4), torch.randn(4, 3)
    monkeypatch.setattr(module, "row_order", lambda *given: (sorts.append(given), row_order(*given))[1])
    found = []
    for shared in (False, True):
        table = [Parameter(torch.ones(6, 3)), Parameter(torch.ones(6)), Parameter(torch.ones(6, 3))]
        for parameter, which, rows in zip(table, (ids, ids, others), values, strict=True):
            parameter.grad = sparse(which, rows, 6)
        clip_and_step(AdaGrad(table, backend=backend), table, 0.5, [table[:2], table[2:]] if shared else [])
        found.append([*table, len(sorts)])
    assert [found[0].pop(), found[1].pop()] == [3, 5]
    assert all(map(torch.equal, *found))
