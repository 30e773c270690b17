"""Nothing is read past the end of weights: a page that nobody may touch lies behind them."""

import subprocess
import sys

import pytest

from elmo_fast.ops import _native

pytestmark = [
    pytest.mark.skipif(_native.C is None, reason=str(_native.WHY_NOT)),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guard pages are made with Linux's mprotect"),
]

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


def test_packing_stays_inside_the_weight():
    """One byte past the end kills the process, and only the last line reads it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode < 0
    assert done.stdout == "inside\n" * 4, done.stderr
