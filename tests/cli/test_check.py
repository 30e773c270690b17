"""`elmo-fast check`: its processes, what passes on a GPU (the stand-in), and the reminder where it has not passed."""

import os
import subprocess
import sys
import types

import pytest
import torch

from elmo_fast.cli import check
from tests.cli.conftest import pair

# Runs commands on the stand-in one after the other in one process; of ops, only one is checked.
PROGRAM = """
import sys
from elmo_fast.cli.main import main
from elmo_fast.ops import cases

cases.CASES = {"scalar_mix": cases.CASES["scalar_mix"]}
for command in sys.argv[1].split(";"):
    print("status", main(command.split()), flush=True)
    print("end of", command.split()[0], file=sys.stderr, flush=True)
"""


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU in name, and an empty folder of what passed; its name can be changed."""
    properties = types.SimpleNamespace(name="Stand-in 1", major=9, minor=0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return properties


def test_a_gpu_is_unchecked_until_the_check_passes_and_after_an_upgrade(gpu, monkeypatch):
    device = torch.device("cuda")
    message = "kernels are unchecked on this Stand-in 1: `elmo-fast check --device cuda` takes about a minute"
    assert check.reminder(device) == message
    assert check.reminder("cpu") is None
    check.remember(device, passed=True)
    assert check.reminder(device) is None
    with monkeypatch.context() as upgraded:
        upgraded.setattr(torch.version, "cuda", "99.0")
        assert check.reminder(device) == message
    assert check.reminder(device) is None
    gpu.minor = 1
    assert check.reminder(device) == message
    gpu.minor = 0
    check.remember(device, passed=False)
    assert check.reminder(device) == message


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("kill -6 $$", "ended by signal 6"),
        ("exec sleep 60", "no answer in 1 s"),
        ("exit 3", "ended with status 3"),
        ("echo compiling; echo '\"case 0: wrong\"'", "case 0: wrong"),
        ("echo null", None),
    ],
)
def test_a_process_that_dies_or_hangs_is_the_result_of_its_check(monkeypatch, tmp_path, program, why):
    """The interpreter of the checks' processes is a script that does so."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(check, "LIMIT", 1 if "sleep" in program else 60)
    checks = [("adagrad", "triton", "float32"), ("scalar_mix", "triton", "float32")]
    assert dict(check.results(checks, torch.device("cuda"))) == dict.fromkeys(checks, why)


@pytest.mark.slow
def test_a_gpu_on_which_ops_graphs_and_dropout_are_right_needs_no_reminder(toy, text, tmp_path):
    model = " ".join(pair(toy))
    embed = f"embed {text} --all {model} --device cuda {tmp_path / 'out'}"
    train = f"pretrain --train_prefix {text} --save_dir {tmp_path / 'run'} --config tiny --device cuda --max_steps 1"
    train += " --min_count 1 --batch_size 2 --n_negative_samples_batch 8 --unroll_steps 3"
    train += " --filters [[1,8]] --dim 16 --projection_dim 8 --char_embedding_dim 4"
    command = ["python", "-W", "always", "-c", PROGRAM, ";".join([f"{embed}.hdf5", train, "check", f"{embed}2.hdf5"])]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "STANDIN_KERNELS": "native"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.standin", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = [line.split() for line in done.stdout.splitlines() if line.endswith(("right", "on cuda"))]
    assert sorted(" ".join(line) for line in printed) == [
        "5 right, 0 wrong on cuda",
        "captured step triton float32 right",
        "dropout triton float32 right",
        "embedding graph triton float32 right",
        "scalar_mix triton right",
        "second GPU triton float32 right",
    ]
    assert [line for line in done.stdout.splitlines() if line.startswith("status")] == ["status 0"] * 4
    said = done.stderr.split("end of")
    assert ["kernels are unchecked on this Stand-in GPU" in each for each in said[:4]] == [True, True, False, False]
