"""torch.func and forward-mode AD over every op that has gradients: right, or an error in one sentence."""

import functools

import pytest
import torch
from torch.autograd import forward_ad

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops.cases import CASES, Draw
from tests.support.backends import backends, device_of


def cases_of(op):
    with torch.device("cpu"):
        return [case for case in CASES[op][0](Draw()) if case.differentiates]


# Minutes in the interpreter; all Triton ops have the same autograd.
SLOW = ("projected_lstm", "triton"), ("char_cnn", "triton")
every = pytest.mark.parametrize(
    ("op", "backend"),
    [
        pytest.param(op, *each.values, marks=each.marks, id=f"{op}-{each.values[0]}")
        for op in CASES
        if cases_of(op)
        for each in backends(op)
        if (op, *each.values) not in SLOW
    ],
)


def problem(case, backend, device):
    """The sum of weighted results as a function of its floating-point tensors, and those tensors."""
    tensors = {name: tensor.to(device) for name, tensor in case.tensors.items()}
    leaves = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}

    def total(leaves):
        results = case.call(tensors | leaves, {"backend": backend, "precision": "float32"})
        weights = Draw(1)
        return sum(
            (result * weights.normal(*result.shape).to(result)).sum()
            for result in results.values()
            if result.is_floating_point()
        )

    return total, leaves


def second_of(function):
    return lambda x: function(x)[1]


def refused_or(expected, call, message):
    """The call is an error that says `said`, or its results are those of the reference."""
    try:
        actual = call()
    except ElmoFastError as error:
        assert message in str(error)  # noqa: PT017 (it need not be raised)
    else:
        torch.testing.assert_close(actual, expected(), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own rules, at their first use
@every
def test_forward_mode_is_right_or_refused(op, backend):
    """No tensor that enters loses its tangent, which would be a derivative of zero; with or without gradients."""
    message = "no derivative in forward mode"

    def tangent(total, leaves, name, enabled):
        leaf = leaves[name]
        with forward_ad.dual_level(), torch.set_grad_enabled(enabled):
            y = total(leaves | {name: forward_ad.make_dual(leaf, torch.ones_like(leaf))})
            return forward_ad.unpack_dual(y).tangent

    def jvp(total, leaves, name):
        leaf = leaves[name]
        return torch.func.jvp(lambda x: total(leaves | {name: x}), (leaf,), (torch.ones_like(leaf),))[1]

    for case in cases_of(op)[: 1 if backend == "triton" else 2]:
        for name in case.tensors:
            total, leaves = problem(case, backend, device_of(backend))
            if name not in leaves:
                continue
            expected = functools.partial(jvp, *problem(case, "reference", device_of(backend)), name)
            refused_or(expected, functools.partial(jvp, total, leaves, name), message)
            for enabled in (True, False):
                refused_or(expected, functools.partial(tangent, total, leaves, name, enabled), message)


@every
def test_torch_func_grad_is_the_gradient(op, backend):
    """Alone, as an outer level, and through vjp after its level has ended."""
    for case in cases_of(op)[: 1 if backend == "triton" else None]:
        total, leaves = problem(case, backend, device_of(backend))
        expected = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
        gradients = torch.autograd.grad(total(expected), list(expected.values()), allow_unused=True)
        expected = {
            name: torch.zeros_like(leaves[name]) if each is None else each.to_dense()
            for name, each in zip(leaves, gradients, strict=True)
        }
        value, pullback = torch.func.vjp(total, leaves)
        ways = (
            torch.func.grad(total)(leaves),
            torch.func.grad(second_of(torch.func.grad_and_value(total)))(leaves),
            pullback(value * 0 + 1)[0],
        )
        for actual in ways:
            for name in leaves:
                torch.testing.assert_close(actual[name].to_dense(), expected[name], rtol=1e-6, atol=1e-6, msg=name)


@every
def test_vmap_is_right_or_refused(op, backend):
    """Forward; and the gradients of a batch of cotangents, as of Jacobians."""
    message = "no batching rule for torch.func.vmap"
    for case in cases_of(op)[:1]:
        total, leaves = problem(case, backend, device_of(backend))
        batch = {name: torch.stack([leaf, leaf * 0.5]) for name, leaf in leaves.items()}

        def each(total=total, batch=batch):
            return torch.stack([total({name: tensor[i] for name, tensor in batch.items()}) for i in range(2)])

        refused_or(each, lambda: torch.func.vmap(total, randomness="same")(batch), message)  # noqa: B023 (called at once)
        if backend == "triton":
            continue  # the interpreter is slow
        value, pullback = torch.func.vjp(total, leaves)
        cotangents = torch.stack([value * 0 + 1, value * 0 + 2])
        singly = [pullback(cotangent)[0] for cotangent in cotangents]
        expected = {name: torch.stack([one[name].to_dense() for one in singly]) for name in leaves}
        refused_or(lambda: expected, lambda: torch.func.vmap(pullback)(cotangents)[0], message)  # noqa: B023
