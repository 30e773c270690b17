"""Packed matrix products: right at every precision and odd shape, also on the fall-back; rows independent."""

import subprocess
import sys

import pytest
import torch

from elmo_fast.ops import _native, rounded
from tests.tolerances import assert_no_worse

pytestmark = pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT))
SHAPES = [
    (1, 1, 1),
    (3, 5, 7),
    (8, 64, 64),
    (65, 33, 129),
    (130, 1025, 70),
    (600, 16, 64),
    (0, 8, 8),
    (70, 0, 130),
    (17, 32, 64),
    (40, 94, 48),
]


@pytest.fixture(params=[False, True], ids=["kernel", "fallback"])
def fallback(request):
    _native.C.disable_block_kernels(request.param)
    yield request.param
    _native.C.disable_block_kernels(False)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("by_rows", [False, True], ids=["columns contiguous", "rows contiguous"])
def test_product_matches_float64(by_rows, shape, precision, fallback):
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n) if by_rows else torch.randn(n, k).t()
    a64, b64 = rounded(a, precision).double(), rounded(b, precision).double()
    ours = torch.ops.elmo_fast.matmul(a, b, precision)
    assert_no_worse("matmul", ours, rounded(a, precision) @ rounded(b, precision), a64 @ b64, "float32")


def test_float64_is_multiplied_in_float64(fallback):
    a, b = torch.randn(9, 700, dtype=torch.float64), torch.randn(700, 66, dtype=torch.float64)
    torch.testing.assert_close(torch.ops.elmo_fast.matmul(a, b, "float32"), a @ b, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_row_does_not_depend_on_the_other_rows(precision):
    a, b = torch.randn(200, 1100), torch.randn(1100, 150)
    whole = torch.ops.elmo_fast.matmul(a, b, precision)
    for rows in (1, 2, 7, 63, 65):
        assert torch.equal(torch.ops.elmo_fast.matmul(a[:rows], b, precision), whole[:rows])


def test_rounding_follows_torch_to_the_bit():
    special = torch.tensor(
        [0.0, -0.0, 1e-45, 6e-8, 5.96e-8, 2.98e-8, 6.1e-5, 65504.0, 65519.9, 65520.0, 1e6, float("inf")]
    )
    values = torch.cat([torch.randn(4096) * 10 ** torch.empty(4096).uniform_(-9, 5), special, -special])[:, None]
    one = torch.ones(1, 1)
    for precision in ("bfloat16", "float16"):
        _native.C.disable_block_kernels(True)
        ours = torch.ops.elmo_fast.matmul(values, one, precision)
        _native.C.disable_block_kernels(False)
        assert torch.equal(ours, rounded(values, precision))


def test_kernels_are_on_until_they_are_disabled():
    """In a process of its own; a sentence says which they are."""
    program = """
from elmo_fast.ops import _native
first = _native.C.has_float32_kernel(), _native.products_on_cpu("float32")
for off in (True, False):
    _native.C.disable_block_kernels(off)
    print(_native.C.has_float32_kernel(), _native.products_on_cpu("float32"), sep=": ")
print(*first, sep=": ")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    off, on, first = done.stdout.splitlines()
    assert off == "False: torch's own product (no AVX-512 kernel here)"
    assert on == first
    assert on in ("True: block kernels (AVX-512)", off)


def test_it_says_what_gpu_kernels_are_in_it():
    assert _native.C.has_cuda == (_native.why_no_cuda() is None)


def test_sixteen_bit_precision_refuses_float64():
    with pytest.raises(ValueError, match="needs float32 tensors"):
        torch.ops.elmo_fast.matmul(torch.ones(2, 2).double(), torch.ones(2, 2).double(), "bfloat16")
