"""A training step, an evaluation and an embedding at production shapes, on two CUDA devices that pretend: what the host
functions allocate and launch is what the fakes say, on the right device, and the host waits for nothing."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from elmo_fast.ops import _triton
from tests.fake_cuda import host

WORKS = ("train", "replay", "evaluate", "embed", "others")
# Launches of Triton's kernels and of torch, at most; lower them when there are fewer. They bound a step on the host.
MOST = {
    "float32": {"train": (307, 96), "replay": (0, 2), "evaluate": (234, 23), "embed": (165, 50), "others": (19, 45)},
    "float16": {"train": (307, 176), "replay": (0, 2), "evaluate": (186, 88), "embed": (165, 50), "others": (19, 47)},
    "bfloat16": {"train": (309, 174), "replay": (0, 2), "evaluate": (188, 86), "embed": (167, 48), "others": (19, 47)},
}


@pytest.fixture(
    scope="module", params=[("cuda:0", "float32"), ("cuda:0", "float16"), ("cuda:1", "bfloat16")], ids="-".join
)
def report(request):
    """Return the results of the host code in a process of its own: device, precision, and the works by name."""
    if torch.backends.cuda.is_built():
        pytest.skip("this torch has CUDA devices of its own")
    if _triton.WHY_NOT is not None or shutil.which("g++") is None:
        pytest.skip(_triton.WHY_NOT or "g++ is not installed")
    command = [sys.executable, "-W", "ignore", "-m", "tests.fake_cuda", *request.param]
    done = subprocess.run(command, cwd=pathlib.Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    device, precision = request.param
    return {"device": device, "precision": precision} | json.loads(done.stdout.splitlines()[-1])


def test_results_are_what_the_fakes_say(report):
    """Shape, dtype, device and strides of every result of every Triton op, forward and backward."""
    assert [report[work]["differences"] for work in WORKS] == [[]] * len(WORKS)
    run = {op for work in WORKS for op in report[work]["calls"]}
    assert set(report["ops"]) == run


def test_everything_stays_on_its_device(report):
    assert [report[work]["devices"] for work in WORKS] == [[report["device"]]] * len(WORKS)


def test_the_host_waits_for_nothing(report):
    """No copy between host and device; reading a value would have ended the process."""
    assert [report[work]["waits"] for work in WORKS] == [[]] * len(WORKS)


@pytest.mark.parametrize("work", WORKS)
def test_no_more_is_launched_than_before(report, work):
    counts = tuple(sum(report[work][by].values()) for by in ("triton", "torch"))
    most = MOST[report["precision"]][work]
    assert counts[0] <= most[0], f"Triton: {report[work]['triton']}"
    assert counts[1] <= most[1], f"torch: {report[work]['torch']}"


# Calls of Python's and torch's functions by the host; lower it when there are fewer.
MOST_CALLS = 1020


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="a stand-in for graphs on the CPU")
def test_a_replayed_step_is_little_work_for_the_host(monkeypatch):
    """Their number does not depend on the machine; `python -m tests.fake_cuda.host` says how long they take."""
    once = host.replayed_step(monkeypatch)
    assert host.calls_of(once) <= MOST_CALLS


def test_each_call_does_the_same(report):
    """Every step has the same ops, allocations, launches and kernel arguments, as a CUDA graph of the whole needs."""
    assert [report[work]["same again"] for work in WORKS] == [True] * len(WORKS)


def test_mistakes_are_found(report):
    """Host code that reads or copies a value, and a fake that names other strides."""
    stopped = dict.fromkeys(("item", "bool", "tolist"), "DataDependentOutputException")
    stopped |= dict.fromkeys(("nonzero", "mask", "unique"), "DynamicOutputShapeException")
    listed = dict.fromkeys(("cpu", "copy", "to", "fake"), "listed")
    assert report["wrong"] == stopped | listed | {"nothing": "unseen"}
