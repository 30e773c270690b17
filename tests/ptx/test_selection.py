"""A few of the tests that run in the emulator, in a process of its own; `make ptx` runs them all."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Of each family of Triton's kernels one: tensor cores in three precisions, copies in stages, reductions, sorted rows,
# and sums of parts behind an atomic.
SELECTION = [
    "tests/ops/test_highway.py::test_is_no_worse_than_torch[70-64-2-64-True-bfloat16-triton]",
    "tests/ops/test_highway.py::test_is_no_worse_than_torch[70-64-2-64-True-float16-triton]",
    "tests/ops/test_unique_rows.py::test_indices_outside_the_table_give_nan_and_touch_nothing[triton]",
    "tests/ops/test_adagrad_rows.py::test_an_order_of_nonsense_reads_no_address_outside[triton]",
    "tests/ops/test_projected_lstm.py::test_clips_hold[triton]",
    "tests/ptx/test_truncation.py::test_products_hold_the_table_as_compiled[tf32x3-positive]",
    "tests/ptx/test_truncation.py::test_products_hold_the_table_as_compiled[ieee-positive]",
    "tests/ptx/test_breaks.py::test_breaks_are_found[unique_rows]",
    "tests/ptx/test_breaks.py::test_breaks_are_found[adagrad]",
    "tests/ptx/test_breaks.py::test_masks_are_found[padded_unique_rows]",
    "tests/ptx/test_far.py::test_the_last_block_reaches_the_end_of_large_tensors[adagrad_rows]",
    "tests/ptx/test_far.py::test_a_product_of_32_bits_is_seen[600000]",
    "tests/ptx/test_counts.py::test_counts_are_as_the_table_says[highway]",
]
# And all of CUDA C++, where nvcc is installed.
BREAKS = [
    f"tests/ptx/test_breaks.py::test_breaks_are_found[{name}]" for name in ("log_uniform_sample", "char_cnn_backward")
]
OF_NVCC = ["tests/ptx/test_cuda.py", *BREAKS]


def test_some_of_the_ops_tests_pass_in_the_emulator(request):
    if getattr(request.config, "emulator", None) is not None:
        pytest.skip("this is the emulator")
    pytest.importorskip("triton", reason="Triton is not installed")
    selection = SELECTION + (OF_NVCC if shutil.which("nvcc") else [])
    command = [sys.executable, "-m", "pytest", "-p", "tests.ptx.plugin", "-q", *selection]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed >= len(selection), done.stdout[-3000:]
    assert not re.search("skipped|deselected", done.stdout), done.stdout[-3000:]
