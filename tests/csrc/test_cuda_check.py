"""Every .cu compiles for sm_80, sm_90a and sm_100, and no kernel is worse than tests/csrc/cuda.json says."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("cuda_check", ROOT / "tools" / "cuda_check.py")
cuda_check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cuda_check)

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, the CUDA compiler, is not installed")


@needs_nvcc
def test_kernels_are_as_the_table_says():
    done = subprocess.run([sys.executable, ROOT / "tools" / "cuda_check.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "log_uniform_sample_kernel<true>" in done.stdout


SPILLING = """
__global__ void __launch_bounds__(1024, 2) spilling_kernel(float* x, int n) {
  float held[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) held[i] = x[i * n];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[(63 - i) * n + 1] = held[i] * held[(i + 7) % 64];
}
"""


@needs_nvcc
def test_a_spill_is_seen(tmp_path):
    """64 numbers do not fit into 32 registers: the assembler says so, and it is read."""
    source = tmp_path / "spilling.cu"
    source.write_text(SPILLING)
    actual = cuda_check.read(cuda_check.compiled(source, "90a"))
    assert actual["spilling_kernel"]["spilled"] > 0
    assert actual["spilling_kernel"]["registers"] == 32


@needs_nvcc
def test_what_does_not_compile_is_an_error(tmp_path):
    (tmp_path / "wrong.cu").write_text("__global__ void wrong_kernel() { nothing(); }\n")
    with pytest.raises(RuntimeError, match=r"wrong\.cu for sm_80.*nothing"):
        cuda_check.measure([tmp_path / "wrong.cu"])


FINE = {"registers": 64, "spilled": 0, "shared": 1000}


@pytest.mark.parametrize("change", [{"spilled": 8}, {"registers": 100}, {"shared": 50_000}], ids=str)
def test_each_complaint_is_made(change):
    """The first test can fail."""
    assert cuda_check.complaints({"k": {"sm_80": FINE}}, {"k": {"sm_80": FINE}}) == []
    assert len(cuda_check.complaints({"k": {"sm_80": FINE}}, {"k": {"sm_80": FINE | change}})) == 1
    assert len(cuda_check.complaints({"k": {"sm_80": FINE}}, {})) == 1
    assert len(cuda_check.complaints({}, {"k": {"sm_80": FINE}})) == 1
