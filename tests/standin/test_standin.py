"""The product on two GPUs that the CPU stands in for: the tests of this folder that need a GPU, in a process of it."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a GPU, these tests run on it")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA devices of its own")
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_passes_on_the_stand_in():
    names = ("mistakes", "modules", "commands", "pretraining")
    options = ["-q", "-p", "no:xdist", "-m", "not slow", *(f"tests/standin/test_{name}.py" for name in names)]
    command = [sys.executable, "-m", "tests.standin", "python", "-m", "pytest", *options]
    environment = os.environ | {"STANDIN_KERNELS": "native", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
