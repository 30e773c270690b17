"""The tests of captured graphs, on two CUDA devices made of the CPU. With a GPU they run by themselves."""

import os
import subprocess
import sys

import pytest

from tests.support.backends import HAS_CUDA

pytestmark = [pytest.mark.skipif(HAS_CUDA, reason="these tests run by themselves"), pytest.mark.slow]
FILES = [
    "tests/ops/test_graphs.py", "tests/modules/test_graph_replay.py", "tests/modules/test_threads.py",
    "tests/pretrain/test_captured_step.py", "tests/pretrain/test_evaluate.py",
]  # fmt: skip


def started(*words, kernels=""):
    """A command on the stand-in; kernels: "native" runs most ops by those of the CPU."""
    environment = os.environ | {"STANDIN_KERNELS": kernels, "STANDIN_MEMORY": str(256 * 2**20), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.standin", "python", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def passed(*files, kernels=""):
    """Run the tests of files that need a GPU's graphs."""
    with started("-m", "pytest", "-q", "-p", "no:xdist", "-m", "graphs", *files, kernels=kernels) as process:
        output = process.communicate()[0]
    assert process.returncode == 0, output
    assert "skipped" not in output, output


def test_graphs_are_captured_and_replayed():
    passed(*FILES, kernels="native")


def test_captured_steps_launch_nothing_for_the_first_time():
    passed("tests/pretrain/test_captured_launches.py")


def test_processes_that_capture_at_different_steps_agree(tmp_path):
    """Neither waits for the other, and the weights are those of eager steps."""
    ranks = [
        started("-m", "tests.pretrain.captured_ranks", str(rank), str(tmp_path / "store"), kernels="native")
        for rank in range(2)
    ]
    try:
        outputs = [each.communicate(timeout=300)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0, 0], "\n".join(outputs)
