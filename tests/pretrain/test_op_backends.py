"""The lines that say who computes."""

import sys
import warnings

import pytest
import torch

from elmo_fast.checkpoints import LOSSES
from elmo_fast.ops import _dispatch, _native
from elmo_fast.pretrain.plan import describe_backends
from elmo_fast.pretrain.run import pretrain
from tests.pretrain.toy import quiet, toy_config

CPU = torch.device("cpu")


def lines(device=CPU, **changes):
    """What a run of the toy configuration says of its ops."""
    return describe_backends(toy_config(**changes), device)


def spoken(line):
    """The backend of each op, from the line that tells it."""
    parts = [part.partition(": ") for part in line.removeprefix("ops    ").split("; ")]
    return {op: name for name, _, each in parts for op in each.split(", ")}


@pytest.mark.parametrize(
    ("backend", "loss", "read"),
    [("auto", "sampled_softmax", "characters"), ("reference", "sampled_softmax", "characters")]
    + [("auto", loss, "words") for loss in LOSSES[1:]],
)
def test_what_is_said_is_what_a_run_calls(tmp_path, monkeypatch, backend, loss, read):
    """Every choice of a backend during a run with an evaluation, but the corpus's own, which lies on the host."""
    called, select = {}, _dispatch.select

    def recording(op, *arguments):
        module = select(op, *arguments)
        called.setdefault(module.__name__.rpartition(".")[2], set()).add(op)
        return module

    for name, module in list(sys.modules.items()):
        if name.startswith("elmo_fast.ops.") and getattr(module, "select", None) is select:
            monkeypatch.setattr(module, "select", recording)
    config = toy_config(tmp_path, heldout_prefix=str(tmp_path / "train-1*"), backend=backend, loss=loss, input=read)
    pretrain(config, report=quiet)
    called["native"] = called.get("native", set()) - {"gather_runs"}
    called["reference"] = called.get("reference", set()) - {"gather_runs"}
    said = spoken(lines(backend=backend, loss=loss, input=read)[0])
    assert {op: name for name, each in called.items() for op in each} == said


def test_a_slow_path_is_said_with_its_reason(monkeypatch):
    """An extension that is missing, and a 16-bit precision that is only rounded."""
    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "it was not built")
    told = lines(precision="float16")
    ops = "unique_rows, char_cnn, highway, projected_lstm, log_uniform_sample, sampled_softmax, full_softmax, adagrad"
    assert [line for line in told if "it was not built" in line] == [
        f"SLOWER {ops}: reference, not native: it was not built"
    ]
    assert told[-1].startswith("SLOWER float16: operands rounded, then multiplied in float32")


def test_without_the_extension_a_run_says_why_once(tmp_path, monkeypatch):
    """In its lines and its warnings together, whichever ops it calls; another run of the process too."""
    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "it was not built")
    _dispatch.warn_once.cache_clear()
    config = toy_config(tmp_path, heldout_prefix=str(tmp_path / "train-1*"), max_steps=2)
    said = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pretrain(config, report=said.append)
    _dispatch.warn_once.cache_clear()
    assert [line for line in (*said, *(str(each.message) for each in warned)) if "it was not built" in line] == [
        next(line for line in said if line.startswith("SLOWER unique_rows, char_cnn, "))
    ]


@pytest.mark.parametrize("precision", ["float32", "tf32", "float16"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_float32_on_a_gpu_is_said_to_be_slow(precision, device):
    said = lines(torch.device(device), precision=precision, backend="reference", optimiser="adamw")
    assert any("--precision bfloat16 or float16" in line for line in said) == (
        (precision, device) == ("float32", "cuda")
    )


@pytest.mark.parametrize("faster", [True, False])
def test_bfloat16_is_slower_only_without_its_kernels(monkeypatch, faster):
    if _native.C is None:
        pytest.skip(_native.WHY_NOT)
    monkeypatch.setattr("elmo_fast.ops.is_faster_on_cpu", lambda precision: faster)
    assert any(line.startswith("SLOWER bfloat16") for line in lines(precision="bfloat16")) != faster
