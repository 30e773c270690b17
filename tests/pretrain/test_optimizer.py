"""The clip and the optimizers' steps; tests/ops hold AdaGrad's updates to the formula, test_step.py a whole step.

With backend "auto" the CPU merges sparse rows first; with a backend named everything goes as on a GPU.
"""

import math

import pytest
import torch
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_fast.errors import ElmoFastError
from elmo_fast.pretrain import optimizer as module
from elmo_fast.pretrain.optimizer import AdaGrad, clip_and_update, make_optimizer, rate_of_step
from tests.pretrain.toy import toy_config
from tests.support.backends import backends, on_device_of

DEVICE_WAYS = backends("adagrad", reference=True)
every = pytest.mark.parametrize("backend", ["auto", *DEVICE_WAYS])


@pytest.fixture(autouse=True)
def on_its_device(request):
    callspec = getattr(request.node, "callspec", None)
    with on_device_of((callspec.params if callspec else {}).get("backend", "auto")):
        yield


def sparse(ids: list[int], rows: torch.Tensor, size: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([ids]), rows, (size, *rows.shape[1:]), check_invariants=True)


def trained(backend, **more):
    """A table and two dense parameters with gradients, rows of one word twice, and their optimizer."""
    torch.manual_seed(5)
    table, matrix, bias = Parameter(torch.randn(6, 3)), Parameter(torch.randn(40, 50)), Parameter(torch.randn(6))
    ids = [4, 1, 4, 0]
    table.grad, bias.grad = sparse(ids, torch.randn(4, 3), 6), sparse(ids, torch.randn(4), 6)
    matrix.grad = torch.randn(40, 50)
    parameters = [table, matrix, bias]
    return parameters, AdaGrad(parameters, backend=backend, **more)


def clip_and_step(optimizer, parameters, max_norm, *tables):
    """Clip and update as a step of training does."""
    if not isinstance(optimizer, AdaGrad):
        return module.clip_and_step(optimizer, parameters, max_norm)
    norm = clip_and_update(optimizer, parameters, max_norm, *tables)
    optimizer.count_step()
    return norm


@every
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_and_step_is_a_clip_and_a_step(backend, max_norm):
    """The weights and norm of dense gradients that torch clips; gradients stay as they were."""
    (parameters, optimizer), (others, other) = trained(backend), trained("auto")
    before = [p.grad.to_dense().clone() for p in parameters]
    norm = clip_and_step(optimizer, parameters, max_norm)
    for parameter in others:
        parameter.grad = parameter.grad.to_dense()
    reference = torch.nn.utils.clip_grad_norm_(others, max_norm)
    other.step()
    assert float(norm) == pytest.approx(float(reference), rel=1e-6)
    assert reference > 1.0
    for actual, expected in zip(parameters, others, strict=True):
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(optimizer.state[actual]["sum"], other.state[expected]["sum"])
        assert optimizer.state[actual]["step"] == 1
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


def test_another_optimizer_leaves_out_an_update_whose_norm_is_no_number():
    """AdamW would move the weights by its momentum even on gradients of zero."""
    parameter = Parameter(torch.ones(3))
    optimizer, parameter.grad = torch.optim.AdamW([parameter], 0.1), torch.ones(3)
    clip_and_step(optimizer, [parameter], 1.0)
    before = parameter.detach().clone()
    assert not before.equal(torch.ones(3))
    parameter.grad = torch.tensor([1.0, math.nan, 1.0])
    assert math.isnan(clip_and_step(optimizer, [parameter], 1.0))
    assert parameter.equal(before)
    assert optimizer.state[parameter]["step"] == 1


@every
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


@pytest.mark.parametrize("backend", DEVICE_WAYS)
def test_the_ids_of_one_table_are_sorted_once(backend):
    """A table and its bias, which have the same rows, and a table with others: the same bits as with a sort each."""
    ids, others, sorts = [4, 1, 4, 0], [2, 5, 1, 2], []
    values = torch.randn(4, 3), torch.randn(4), torch.randn(4, 3)

    class Sorts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            sorts.extend([function] * ("sort" in function.name()))
            return function(*args, **kwargs or {})

    actual = []
    for shared in (False, True):
        table = [Parameter(torch.ones(6, 3)), Parameter(torch.ones(6)), Parameter(torch.ones(6, 3))]
        for parameter, which, rows in zip(table, (ids, ids, others), values, strict=True):
            parameter.grad = sparse(which, rows, 6)
        with Sorts():
            clip_and_step(AdaGrad(table, backend=backend), table, 0.5, [table[:2], table[2:]] if shared else [])
        actual.append([*table, len(sorts)])
    assert [actual[0].pop(), actual[1].pop()] == [3, 5]
    assert all(map(torch.equal, *actual))


def test_a_state_of_another_adagrad_is_refused():
    """No update would read its ε or decay; one of its own is taken, with its learning rate."""
    mine, others = AdaGrad([Parameter(torch.ones(3))], 0.5), AdaGrad([Parameter(torch.ones(3))], 0.1)
    mine.load_state_dict(others.state_dict())
    assert mine.param_groups[0]["lr"] == 0.1
    foreign = torch.optim.Adagrad([Parameter(torch.ones(3))], lr_decay=0.1)
    with pytest.raises(ElmoFastError, match=r"of elmo_fast's AdaGrad.* got {'eps': 1e-10, 'lr_decay': 0\.1}"):
        mine.load_state_dict(foreign.state_dict())


@pytest.mark.parametrize(
    ("total", "changes", "expected"),
    [
        (3, {}, {0: 0.2, 2: 0.2}),  # bilm-tf's
        (2, {"optimiser": "adamw"}, {0: 0.001, 1: 0.001}),
        (1, {"optimiser": "adamw", "learning_rate": 0.5}, {0: 0.5}),
        (
            12,
            {"learning_rate": 1.0, "schedule": "linear", "warmup_steps": 3, "final_share": 0.1},
            {0: 0.25, 1: 0.5, 2: 0.75} | {3 + k: 1 - 0.9 * k / 9 for k in range(9)},
        ),
        (
            100,
            {"learning_rate": 1.0, "schedule": "cosine", "final_share": 0.2},
            {0: 1, 50: 0.6, 100: 0.2, 1000: 0.2, 25: 0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2},
        ),
    ],
)
def test_the_rate_of_a_step_is_that_of_the_schedule(total, changes, expected):
    """Up and down a line, or down a cosine, to the share left."""
    config = toy_config(**changes).optimizer
    assert {step: rate_of_step(config, total, step) for step in expected} == pytest.approx(expected)


def test_each_name_gives_its_optimizer():
    from elmo_fast.pretrain.language_model import make_language_model

    config = toy_config(optimiser="adamw", weight_decay=0.1)
    model = make_language_model(config, 20)
    adamw = make_optimizer(config.optimizer, model)
    assert type(adamw) is torch.optim.AdamW
    assert (adamw.defaults["lr"], adamw.defaults["weight_decay"]) == (0.001, 0.1)
    config.optimizer.optimiser = "adagrad"
    assert type(make_optimizer(config.optimizer, model)) is AdaGrad
