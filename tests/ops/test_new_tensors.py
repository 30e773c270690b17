"""Every op on tensors without values: shapes and dtypes on the device meta are those of the CPU.

That each tensor that an op makes names its device is asked of the sources (tests/test_default_device.py).
"""

import functools

import pytest
import torch

from elmo_fast import ops
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops.cases import CASES, Draw
from elmo_fast.static import glove as steps


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
ON_META = {
    f"{op} {number}": functools.partial(of_a_case, op, number) for op, numbers in OF_CASES.items() for number in numbers
}
ON_META["glove"] = glove


def test_functions_of_the_host_need_no_default_device():
    weights = torch.tensor([3.0, 1.0, 0.5])
    with torch.device("meta"):
        assert not ops.alias_sample(5, ops.alias_table(weights), seed=0).is_meta


@pytest.mark.parametrize("name", ON_META)
def test_shapes_come_out_of_tensors_without_values(name):
    """On the device meta: shape and dtype of the result are those of the CPU, and the backward pass runs."""
    expected, actual = (ON_META[name](torch.device(device))() for device in ("cpu", "meta"))
    assert (actual.shape, actual.dtype, actual.is_meta) == (expected.shape, expected.dtype, True)
    if expected.requires_grad:
        actual.sum().backward()


def test_how_many_rows_are_distinct_is_not_told_of_tensors_without_values():
    with pytest.raises(ElmoFastError, match="meta tensors do not have; use ordered_unique_rows"):
        ops.unique_rows(torch.empty(3, 2, dtype=torch.int64, device="meta"))
