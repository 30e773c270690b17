"""A run that is killed with SIGKILL goes on as if it had not been."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.pretrain.processes import ROOT

KILLS = 20


@pytest.mark.slow
def test_killed_runs_end_with_the_same_bytes_of_weights(tmp_path):
    """Killed ten times and more at random moments, and once at each moment at which a save touches the disk."""
    done = subprocess.run(
        [sys.executable, str(pathlib.Path(__file__).with_name("killed_worker.py")), str(tmp_path), str(KILLS)],
        capture_output=True, text=True, timeout=280, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"]["random"] >= 10
    assert found["kills"]["saving"] >= 25
    assert len(set(map(tuple, found["digests"]))) == 1
    undisturbed = found["losses"]["undisturbed"]
    assert [step for step, *_ in undisturbed] == list(range(5, 121, 5))
    assert found["losses"]["random"] == undisturbed
    assert found["losses"]["saving"] == undisturbed
    assert all(left == ["best", "step-0000119", "step-0000120"] for left in found["left"].values())
