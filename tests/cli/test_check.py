"""`elmo-fast check`: its processes, and the reminder where it has not passed (tests/standin: what passes on a GPU)."""

import sys
import types
import warnings

import pytest
import torch

from elmo_fast.cli import check


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU in name, and an empty folder of what passed; its name can be changed."""
    properties = types.SimpleNamespace(name="Stand-in 1", major=9, minor=0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return properties


def reminder(device):
    with warnings.catch_warnings(record=True, action="always") as said:
        check.remind(device)
    return str(said[0].message) if said else None


def test_a_gpu_is_unchecked_until_the_check_passes_and_after_an_upgrade(gpu, monkeypatch):
    device = torch.device("cuda")
    message = "kernels are unchecked on this Stand-in 1: `elmo-fast check --device cuda` takes about a minute"
    assert reminder(device) == message
    assert reminder("cpu") is None
    check.remember(device, passed=True)
    assert reminder(device) is None
    with monkeypatch.context() as upgraded:
        upgraded.setattr(torch.version, "cuda", "99.0")
        assert reminder(device) == message
    assert reminder(device) is None
    gpu.minor = 1
    assert reminder(device) == message
    gpu.minor = 0
    check.remember(device, passed=False)
    assert reminder(device) == message


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
