"""int8 operands: integers as the definition has them, with each instruction set; inference alone."""

import pytest
import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, explain, full_softmax, highway, projected_lstm
from elmo_fast.ops._precision import linear, operand, quantized
from tests.ops.highway_cases import case as highway_case
from tests.ops.lstm_cases import cast, make
from tests.support.tolerances import assert_no_worse

native = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
SHAPES = [
    (1, 1, 1), (3, 5, 7), (65, 33, 129), (130, 1025, 70), (600, 16, 64), (0, 8, 8), (70, 0, 130), (17, 32, 64),
    (33, 4096, 200),
]  # fmt: skip


def test_a_row_is_integers_times_its_largest_by_127():
    q = quantized(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [3.0, torch.inf, 1.0], [1e-35, 0.0, 0.0]]))
    assert q.integers.tolist() == [[64, -127, 32], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(q.scale[:, 0], torch.tensor([2 / 127, 0.0, torch.nan, 0.0]), equal_nan=True)


@native
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("by_rows", [False, True], ids=["columns contiguous", "rows contiguous"])
@pytest.mark.usefixtures("isa")
def test_products_equal_the_definition_to_the_bit(by_rows, shape):
    """Also of rows of zeros, of tiny numbers and of infinity, and of columns of zeros."""
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n) if by_rows else torch.randn(n, k).t()
    if m > 3:
        a[0], a[1], a[2, -1:] = a[0] * 1e-36, 0.0, torch.inf
        b[:, n // 2] = 0.0
    actual = torch.ops.elmo_fast.matmul(a, b, "int8")
    torch.testing.assert_close(actual, linear(a, operand(b.t(), "int8"), "int8"), rtol=0, atol=0, equal_nan=True)


@native
@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    ("batch", "cells", "projected"), [(19, 70, True), (1, 36, True), (90, 33, True), (5, 24, False)]
)
def test_projected_lstm(batch, cells, projected):
    size = 24 if projected else cells
    inputs, weights, lengths, state = make(
        batch, 5, size, size, cells, projected=projected, lengths=torch.arange(batch) % 6
    )
    with torch.no_grad():
        truth = projected_lstm(
            *cast((inputs, weights, lengths, state), torch.float64), residual=True, backend="reference"
        )
        actual, reference = (
            projected_lstm(inputs, weights, lengths, state, residual=True, precision="int8", backend=backend)
            for backend in ("native", "reference")
        )
    for name, one, other, true in zip(
        ("y", "h", "c"), (actual[0], *actual[1]), (reference[0], *reference[1]), (truth[0], *truth[1]), strict=True
    ):
        assert_no_worse(name, one, other, true, "int8")


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_gradients_are_refused(backend):
    inputs, weights, lengths, state = cast(make(2, 3, 8, 8, 16), torch.float32)
    c = highway_case(4, 16).to(torch.float32)
    for run in (
        lambda: projected_lstm(inputs, weights, lengths, state, precision="int8", backend=backend),
        lambda: highway(*c, precision="int8", backend=backend),
    ):
        with pytest.raises(
            ElmoFastError, match=r'precision="int8" is for inference and has no gradients; run it within'
        ):
            run()
        with torch.no_grad():
            run()


@native
def test_what_cannot_serve_int8_says_so():
    c = highway_case(4, 16)
    with pytest.raises(ElmoFastError, match="float64"):
        highway(
            c.x.double(),
            [w.double() for w in c.weights],
            [b.double() for b in c.biases],
            precision="int8",
            backend="native",
        )
    with pytest.raises(ElmoFastError, match="precision must be one of float32, bfloat16, float16; got 'int8'"):
        full_softmax(
            torch.ones(1, 2), torch.zeros(1, dtype=torch.int64), torch.ones(3, 2), torch.ones(3), precision="int8"
        )
    with pytest.raises(ElmoFastError, match="precision must be one of"):
        explain("full_softmax", "cpu", precision="int8")
    with pytest.raises(ElmoFastError, match=r"the Triton kernels do not support int8.*use precision=\"float16\""):
        explain("highway", "cuda", precision="int8")
    assert explain("projected_lstm", "cpu", precision="int8").backend == "native"
