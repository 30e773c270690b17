"""Every tensor that an op makes by itself is made on the device of its arguments.

The tests of a GPU backend make the GPU the default device, which would hide a factory without `device=`. Here the
default is the meta device, on which nothing can be computed: such a tensor shows at once, on the CPU too.
"""

import functools

import pytest
import torch

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops.cases import CASES, Draw
from elmo_fast.static import glove as steps
from tests.backends import backends, device_of


def of_a_case(op, number, device, **options):
    """A case of `ops/cases.py`, as a call that adds its results up."""
    with torch.device("cpu"):
        case = CASES[op][0](Draw())[number]
    tensors = {name: tensor.to(device) for name, tensor in case.tensors.items()}
    for tensor in tensors.values():
        tensor.requires_grad_(case.differentiates and tensor.is_floating_point())

    def call():
        actual = case.call(tensors, {"precision": "float32", "backend": "auto", **options})
        return torch.cat([each.flatten() for each in actual.values() if each.is_floating_point()])

    return call


def glove(device, **options):
    """In place too."""
    places = torch.tensor([0, 2, 1], dtype=torch.int32, device=device)
    shapes = (3, 4), (3, 4), (3,), (3,)
    weights, squares = (steps.GloveWeights(*(torch.rand(*shape, device=device) + 1 for shape in shapes)) for _ in "wa")

    def call():
        steps.glove_(places, places.flip(0), weights.word_biases + 1, weights, squares, **options)
        return weights.words

    return call


OF_CASES = {op: range(len(make(Draw()))) for op, (make, _) in CASES.items() if op != "log_uniform_sample"}
OF_CASES["projected_lstm"] = range(1)
WITH_TENSORS = {
    **{
        f"{op} {number}": (op, functools.partial(of_a_case, op, number))
        for op, numbers in OF_CASES.items()
        for number in numbers
    },
    "glove": ("glove", glove),
}
BACKENDS = [
    pytest.param(name, *each.values, marks=each.marks, id=f"{name}-{each.values[0]}")
    for name, (op, _) in WITH_TENSORS.items()
    for each in backends(op, reference=True)
    # Its launches take the interpreter half a minute, and tests/fake_cuda sees the devices of their arguments.
    if (op, *each.values) != ("projected_lstm", "triton")
]


@pytest.mark.parametrize(("name", "backend"), BACKENDS)
def test_an_op_needs_no_default_device(name, backend):
    """Forward and backward under a default device that is of no use."""
    device = device_of(backend)
    call = WITH_TENSORS[name][1](device, backend=backend)
    with torch.device("meta"):
        actual = call()
        loss = actual.sum()
        if loss.requires_grad:
            loss.backward()
    assert actual.device.type == device.type
    assert torch.isfinite(loss)


def test_functions_of_the_host_need_no_default_device():
    weights, values = torch.tensor([3.0, 1.0, 0.5]), torch.arange(9, dtype=torch.int32)
    first, lengths = torch.tensor([[0, 7], [2, 3]])
    with torch.device("meta"):
        actual = [ops.alias_sample(5, ops.alias_table(weights), seed=0)]
        actual += [ops.gather_runs(parts, first, lengths, 1) for parts in ([values], [values[:5], values[5:]])]
    assert not any(each.is_meta for each in actual)


@pytest.mark.parametrize("name", WITH_TENSORS)
def test_shapes_come_out_of_tensors_without_values(name):
    """On the device meta: shape and dtype of the result are those of the CPU, and the backward pass runs."""
    expected, actual = (WITH_TENSORS[name][1](torch.device(device))() for device in ("cpu", "meta"))
    assert (actual.shape, actual.dtype, actual.is_meta) == (expected.shape, expected.dtype, True)
    if expected.requires_grad:
        actual.sum().backward()


def test_how_many_rows_are_distinct_is_not_told_of_tensors_without_values():
    with pytest.raises(ElmoFastError, match="meta tensors do not have; use padded_unique_rows"):
        ops.unique_rows(torch.empty(3, 2, dtype=torch.int64, device="meta"))


def test_no_op_is_left_out():
    """Every registered op has its case above; the sampler takes no tensor that would say where it runs."""
    assert set(ops.op_names()) - {op for op, _ in WITH_TENSORS.values()} <= {"log_uniform_sample"}
