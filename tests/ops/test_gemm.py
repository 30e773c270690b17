"""Packed matrix products: right at every precision and odd shape, with each instruction set; rows independent; nothing
read past the end of a weight. In int8 integers as the definition has them, for inference alone."""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import pytest
import torch

from elmo_fast._runtime.threads import torch_threads
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _native, explain, full_softmax, highway, projected_lstm, rounded
from elmo_fast.ops._precision import linear, operand, quantized
from tests.ops.highway_cases import case as highway_case
from tests.ops.lstm_cases import cast, make
from tests.support.tolerances import assert_no_worse

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


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("by_rows", [False, True], ids=["columns contiguous", "rows contiguous"])
@pytest.mark.usefixtures("isa")
def test_product_matches_float64(by_rows, shape, precision):
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n) if by_rows else torch.randn(n, k).t()
    a64, b64 = rounded(a, precision).double(), rounded(b, precision).double()
    actual = torch.ops.elmo_fast.matmul(a, b, precision)
    assert_no_worse("matmul", actual, rounded(a, precision) @ rounded(b, precision), a64 @ b64, "float32")
    assert torch.equal(torch.ops.elmo_fast.matmul(a.t().contiguous().t(), b, precision), actual)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("shape", "by_rows"), [((4099, 1100), False), ((1027, 4110), True)], ids=str)
def test_a_weight_too_large_for_the_caches_is_packed_whole(shape, by_rows, precision):
    """8 MiB and more are written past the caches, by one thread and by three; every packed number is read back."""
    b = torch.randn(shape) if by_rows else torch.randn(shape[::-1]).t()
    expected = rounded(b, precision)
    for threads in (1, 3):
        with torch_threads(threads):
            for first in (0, shape[0] // 2, shape[0] - 40):
                rows = torch.zeros(40, shape[0])
                rows[range(40), range(first, first + 40)] = 1
                actual = torch.ops.elmo_fast.matmul(rows, b, precision)
                assert torch.equal(actual, expected[first : first + 40])


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8"])
def test_threads_that_share_the_rounding_of_rows_change_nothing(precision):
    a, b = torch.randn(900, 130), torch.randn(130, 64)
    with torch_threads(1):
        expected = torch.ops.elmo_fast.matmul(a, b, precision)
    with torch_threads(3):
        assert torch.equal(torch.ops.elmo_fast.matmul(a, b, precision), expected)


@pytest.mark.usefixtures("isa")
def test_float64_is_multiplied_in_float64():
    a, b = torch.randn(9, 700, dtype=torch.float64), torch.randn(700, 66, dtype=torch.float64)
    torch.testing.assert_close(torch.ops.elmo_fast.matmul(a, b, "float32"), a @ b, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.usefixtures("isa")
def test_a_row_does_not_depend_on_the_other_rows(precision):
    a, b = torch.randn(200, 1100), torch.randn(1100, 150)
    whole = torch.ops.elmo_fast.matmul(a, b, precision)
    for rows in (1, 2, 7, 13, 63, 65):
        assert torch.equal(torch.ops.elmo_fast.matmul(a[:rows], b, precision), whole[:rows])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.usefixtures("isa")
def test_rounding_follows_torch_to_the_bit(precision):
    """Both operands, left and packed; bfloat16's own subnormal numbers count as zero in pairs and tiles."""
    special = torch.tensor(
        [0.0, -0.0, 6e-8, 5.96e-8, 2.98e-8, 6.1e-5, 65504.0, 65519.9, 65520.0, 1e6, float("inf"), float("nan")]
    )
    values = torch.cat([torch.randn(4096) * 10 ** torch.empty(4096).uniform_(-9, 5), special, -special])[:, None]
    one, expected = torch.ones(1, 1), rounded(values, precision)
    left = torch.ops.elmo_fast.matmul(values, one, precision)
    packed = torch.ops.elmo_fast.matmul(one, values.t(), precision).t()
    for actual in (left, packed):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def run_python(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | environment)


def test_the_newest_instruction_set_is_used_unless_the_environment_differs():
    program = "from elmo_fast.ops import _native; print(_native.C.isa(), *_native.C.isas())"
    newest, *known = run_python(program, ELMO_FAST_ISA="").stdout.split()
    is_intel = "GenuineIntel" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert newest == ("avx512_vnni" if known[-1] == "avx512_bf16" and is_intel else known[-1])
    assert known[0] == "generic"
    for name in {known[0], known[len(known) // 2]}:  # the fixture `isa` takes each, by the function that reads this
        assert run_python(program, ELMO_FAST_ISA=name).stdout.split()[0] == name


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86-64")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_the_module_has_the_kernels_of_every_instruction_set_whichever_the_cpu_that_built_it_has():
    """bfloat16 and int8 of AVX-512, VNNI of AVX2 and AVX-512, AMX: none is left out on a CPU that lacks it."""
    command = ("objdump", "-d", "--no-show-raw-insn", _native.C.__file__)
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    instructions = {
        "avx2": r"vfmadd\w+ .*%ymm",
        "avx2_vnni": r"\{vex\} vpdpbusd .*%ymm",
        "avx512": r"vfmadd\w+ .*%zmm",
        "avx512_vnni": r"\tvpdpbusd .*%zmm",
        "avx512_bf16": r"vdpbf16ps .*%zmm",
        "amx in bfloat16": r"tdpbf16ps .*%tmm",
        "amx in int8": r"tdpb[su][su]d .*%tmm",
    }
    assert [name for name, pattern in instructions.items() if not re.search(pattern, code)] == []


@pytest.mark.skipif(not pathlib.Path("/proc/cpuinfo").is_file(), reason="needs /proc/cpuinfo")
def test_every_instruction_set_of_this_cpu_is_known():
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    names = {"avx2": "avx2", "avx2_vnni": "avx_vnni", "avx512": "avx512bw"}
    names |= {name: name for name in ("avx512_vnni", "avx512_bf16")}
    assert [name for name in _native.C.isas() if name not in ("generic", "amx")] == [
        n for n in names if names[n] in flags
    ]


def test_an_instruction_set_that_is_not_here_is_refused_in_one_sentence():
    done = run_python("from elmo_fast.ops import _native; _native.C.isa()", ELMO_FAST_ISA="avx1024")
    assert done.stderr.splitlines()[-1].startswith(
        "ValueError: ELMO_FAST_ISA must be an instruction set that this CPU has (generic"
    )
    with pytest.raises(ValueError, match="got avx1024"):
        _native.C.limit_isa("avx1024")


def test_sixteen_bit_precision_refuses_float64():
    with pytest.raises(ValueError, match="needs float32 tensors"):
        torch.ops.elmo_fast.matmul(torch.ones(2, 2).double(), torch.ones(2, 2).double(), "bfloat16")


INT8_SHAPES = [
    (1, 1, 1), (3, 5, 7), (65, 33, 129), (130, 1025, 70), (600, 16, 64), (0, 8, 8), (70, 0, 130), (17, 32, 64),
    (33, 4096, 200),
]  # fmt: skip


def test_a_row_is_integers_times_its_largest_by_127():
    q = quantized(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [3.0, torch.inf, 1.0], [1e-35, 0.0, 0.0]]))
    assert q.integers.tolist() == [[64, -127, 32], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(q.scale[:, 0], torch.tensor([2 / 127, 0.0, torch.nan, 0.0]), equal_nan=True)


@pytest.mark.parametrize("shape", INT8_SHAPES, ids=str)
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


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    ("batch", "cells", "projected"), [(19, 70, True), (1, 36, True), (90, 33, True), (5, 24, False)]
)
def test_projected_lstm_in_int8(batch, cells, projected):
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
def test_gradients_in_int8_are_refused(backend):
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


# Both packers, by rows and by columns, of weights whose last row or column ends where the page begins.
PROGRAM = """
import ctypes, mmap
import torch
from elmo_fast.ops import _native

for k, n in ((5, 70), (9, 513), (65, 64), (3, 1)):
    whole = -(-k * n * 4 // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    no_access = 0
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + whole), mmap.PAGESIZE, no_access) == 0
    data = torch.frombuffer(memory, dtype=torch.float32, count=k * n, offset=whole - k * n * 4).copy_(torch.ones(k * n))
    for weight in (data.view(k, n), data.view(n, k).t()):
        for precision in ("float32", "bfloat16", "float16", "int8"):
            assert torch.ops.elmo_fast.matmul(torch.ones(3, k), weight, precision).round().eq(k).all()
    print("inside", flush=True)
ctypes.string_at(start + whole - 1, 2)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guard pages are made with Linux's mprotect")
def test_packing_stays_inside_the_weight():
    """One byte past the end kills the process, and only the last line reads it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode < 0
    assert done.stdout == "inside\n" * 4, done.stderr
