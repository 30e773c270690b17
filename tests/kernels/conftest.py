"""One process compiles what changed, for all tests of this folder: here Triton's kernels are interpreted."""

import json
import pathlib
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def rows():
    """{"found": {op: {kernel: {"sm_80": row, ...}}}, "again": [what was not taken from the golden tables]}."""
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "tests.kernels.compile"]
    done = subprocess.run(command, cwd=pathlib.Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
