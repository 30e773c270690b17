"""The product on two GPUs that the CPU stands in for."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs these tests itself")
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", ["commands"])
def test_passes_on_the_stand_in(name):
    command = [
        sys.executable,
        "-m",
        "tests.standin",
        "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        f"tests/standin/test_{name}.py",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"STANDIN_KERNELS": "native"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
