"""`elmo-fast pretrain` on a GPU, real or stood in for: captured steps leave the weights of eager ones."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.pretrain.processes import ROOT, losses, torchrun
from tests.pretrain.toy import SENTENCES, same, toy_config
from tests.support.command_line import elmo_fast

if not torch.cuda.is_available():
    pytest.skip("needs a GPU, or `python -m tests.standin python -m pytest ...`", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("default", "error::elmo_fast.errors.PerformanceWarning")
KINDS = {
    "evaluated": {"heldout_interval": 3, "dropout": 0.3, "state_reset": 0.3},
    "adamw": {"optimiser": "adamw", "learning_rate": 0.01, "micro_batches": 2, "batch_size": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder in which runs are written, with held-out text."""
    path = tmp_path_factory.mktemp("pretrain")
    (path / "heldout.txt").write_text("\n".join(SENTENCES[:2]) + "\n")
    return path


def words_of(folder, name, **changes):
    """Return a command that trains eight steps: two epochs, each of which ends with a shorter batch."""
    settings = {"max_steps": 8, "n_epochs": 9, "log_interval": 1, "precision": "float32", "dropout": 0.0}
    settings |= {"loss": "full_softmax"} | changes
    if "heldout_interval" in changes:
        settings["heldout_prefix"] = str(folder / "heldout.txt")
    config = toy_config(folder, save_dir=str(folder / name), **settings)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config.flat()))
    return ["pretrain", "--config", folder / f"{name}.yaml"]


def trained(folder, name, *options, **changes):
    """Train with `elmo-fast pretrain`; return the weights."""
    done = elmo_fast(*words_of(folder, name, **changes), *options)
    assert done.returncode == 0, done.stderr
    return load_file(folder / name / "model.safetensors")


@pytest.fixture
def replays(monkeypatch):
    """Return the list to which each replay of a graph is added."""
    replayed, replay = [], torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replayed.append(graph), replay(graph))[1])
    return replayed


@pytest.mark.parametrize("kind", KINDS)
def test_captured_steps_leave_the_weights_of_eager_ones(folder, replays, kind):
    """Bit for bit, on either GPU; without dropout, whose numbers are the device's own, the CPU's losses too."""
    captured = trained(folder, f"{kind}-captured", **KINDS[kind])
    assert replays
    replays.clear()
    eager = trained(folder, f"{kind}-eager", "--device", "cuda:1", cuda_graph=False, **KINDS[kind])
    assert same(captured, eager)
    assert not replays
    if "dropout" not in KINDS[kind]:
        trained(folder, f"{kind}-cpu", "--device", "cpu", **KINDS[kind])
        np.testing.assert_allclose(losses(folder, f"{kind}-captured"), losses(folder, f"{kind}-cpu"), rtol=2e-4)


def test_a_run_that_is_killed_goes_on_where_it_was(folder):
    """SIGKILL after the third checkpoint; the rest on the other GPU."""
    changes = {"checkpoint_interval": 1, "max_steps": 8, "dropout": 0.2, "state_reset": 0.3}
    whole = trained(folder, "unkilled", **changes)
    command = [sys.executable, "-m", "elmo_fast", *words_of(folder, "killed", **changes | {"max_steps": 4000})]
    process = subprocess.Popen([*map(str, command)], cwd=ROOT, stderr=subprocess.DEVNULL)
    metrics = folder / "killed" / "metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and len(metrics.read_text().splitlines()) >= 3):
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert same(trained(folder, "killed", "--device", "cuda:1", **changes), whole)


def test_two_processes_share_a_batch(folder):
    """Each on a GPU of its own, captured: the loss of one that has the whole batch; both leave one set of weights."""
    changes = {"batch_size": 4, "loss": "sampled_softmax", "max_steps": 6}
    trained(folder, "one-process", cuda_graph=False, **changes)
    status, output = torchrun(2, "-m", "elmo_fast", *words_of(folder, "two-processes", **changes))
    assert status == 0, output
    assert "cuda:0" in output
    np.testing.assert_allclose(losses(folder, "two-processes"), losses(folder, "one-process"), rtol=2e-4)


@pytest.mark.skipif("STANDIN" not in os.environ, reason="the memory of a real GPU cannot be made small")
def test_memory_that_ends_in_a_step_ends_the_run_in_one_line(folder):
    """torch's own sentence, which has the GPU's figures, and what to change."""
    command = [sys.executable, "-m", "elmo_fast", *words_of(folder, "too-little", cuda_graph=False, batch_size=60)]
    environment = os.environ | {"STANDIN_MEMORY": "600000"}  # bytes: enough for the model, not for a step
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True)
    *lines, last = done.stderr.splitlines()
    assert done.returncode == 2
    assert lines[-1].startswith("train ")
    assert last.startswith("elmo-fast pretrain: error: memory ran out: CUDA out of memory")
    assert "; lower --batch_size" in last


def test_eval(folder):
    trained(folder, "evaluated-model")
    figures = []
    for device in ("cpu", "cuda:1"):
        output = folder / f"eval-{device}.json"
        words = ["--save_dir", folder / "evaluated-model", "--test_prefix", folder / "heldout.txt", "--output", output]
        done = elmo_fast("eval", *words, "--device", device)
        assert done.returncode == 0, done.stderr
        figures.append(json.loads(output.read_text()))
    assert figures[1]["perplexity"] == pytest.approx(figures[0]["perplexity"], rel=1e-4)


def test_a_dry_run_measures_on_the_gpu(folder):
    done = elmo_fast(*words_of(folder, "dry"), "--dry_run")
    assert done.returncode == 0, done.stderr
    assert "cuda" in done.stdout + done.stderr
