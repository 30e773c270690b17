"""Nothing is read or written past the end of weights, or of a kernel's own memory: a page that nobody may touch
lies behind it."""

import os
import shutil
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
import ctypes, mmap, sys
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
if sys.argv[1] == "past":
    ctypes.string_at(start + whole - 1, 2)
print("done")
"""


def run(how):
    return subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True)


def test_packing_stays_inside_the_weight():
    done = run("inside")
    assert (done.returncode, done.stdout) == (0, "inside\n" * 4 + "done\n"), done.stderr


def test_the_page_is_guarded():
    """The test above can fail: one byte past the end kills the process."""
    done = run("past")
    assert done.returncode < 0
    assert done.stdout == "inside\n" * 4, done.stderr


# C++'s allocations while `elmo_guard` is set: each ends (to 16 bytes) where a guarded page begins, and is never freed.
GUARD = r"""
#include <sys/mman.h>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
extern "C" { int elmo_guard = 0; }
namespace {
constexpr size_t kPage = 4096, kArena = size_t{1} << 32;
constexpr int kNew = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
char* const arena = static_cast<char*>(mmap(nullptr, kArena, PROT_NONE, kNew, -1, 0));
std::atomic<size_t> used{0};
}
void* operator new(size_t bytes) {
  void* found = nullptr;
  if (!elmo_guard) {
    found = std::malloc(bytes ? bytes : 1);
  } else {
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    char* const begin = arena + used.fetch_add(size + kPage);
    if (begin + size < arena + kArena && mprotect(begin, size, PROT_READ | PROT_WRITE) == 0)
      found = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(begin + size - bytes) & ~uintptr_t{15});
  }
  if (!found) throw std::bad_alloc();
  return found;
}
void operator delete(void* p) noexcept {
  if (p < arena || p >= arena + kArena) std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
"""

DISTINCT = """
import ctypes, sys
import torch
from elmo_fast.ops import unique_rows

guard = ctypes.c_int.in_dll(ctypes.CDLL(None), "elmo_guard")
for rows in range(100):
    ids = torch.arange(rows)[:, None]
    guard.value = 1
    unique, inverse = unique_rows(ids, backend="native")
    guard.value = 0
    assert torch.equal(unique, ids) and torch.equal(inverse, ids[:, 0])
if sys.argv[1] == "past":
    new = ctypes.CDLL(None)["_Znwm"]
    new.argtypes, new.restype, guard.value = [ctypes.c_size_t], ctypes.c_void_p, 1
    ctypes.string_at(new(64) + 63, 2)
print("done")
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.skipif("san" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer guards all memory itself")
def test_distinct_rows_are_found_within_the_table(tmp_path):
    (tmp_path / "guard.cpp").write_text(GUARD, encoding="ascii")
    guard = tmp_path / "guard.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-shared", "-fPIC", tmp_path / "guard.cpp", "-o", guard], check=True)
    for how, status, message in (("inside", 0, "done\n"), ("past", -11, "")):
        done = subprocess.run(
            [sys.executable, "-c", DISTINCT, how],
            capture_output=True,
            text=True,
            env=os.environ | {"LD_PRELOAD": str(guard)},
        )
        assert (done.returncode, done.stdout) == (status, message), done.stderr
