"""The lines that say who computes."""

import pytest
import torch

from elmo_fast import ops
from elmo_fast.ops import _native
from elmo_fast.pretrain.backends import backend_lines

CPU = torch.device("cpu")


def test_every_op_is_under_the_backend_that_would_serve_it():
    line, *_ = backend_lines("tf32", "auto", "adagrad", CPU)
    served = {op: name for part in line.removeprefix("ops    ").split("; ") for name, _, each in [part.partition(": ")]
              for op in each.split(", ")}  # fmt: skip
    assert set(served) == set(ops.ops()) - {"scalar_mix"}
    for op, name in served.items():
        assert name == ops.explain(op, CPU, torch.float32).backend
    assert "adagrad" not in backend_lines("float32", "auto", "adamw", CPU)[0]


def test_a_named_backend_is_said_where_an_op_has_it():
    line, *_ = backend_lines("float32", "reference", "adagrad", CPU)
    assert line.startswith("ops    reference: ")
    assert ";" not in line


def test_a_slow_path_is_said_with_its_reason(monkeypatch):
    """An extension that is missing, and a 16-bit precision that is only rounded."""
    monkeypatch.setattr(_native, "C", None)
    monkeypatch.setattr(_native, "WHY_NOT", "it was not built")
    lines = backend_lines("float16", "auto", "adagrad", CPU)
    assert "SLOWER projected_lstm: reference, not native: it was not built" in lines
    assert lines[-1].startswith("SLOWER float16: operands rounded, then multiplied in float32")


@pytest.mark.parametrize("faster", [True, False])
def test_bfloat16_is_slower_only_without_its_kernels(monkeypatch, faster):
    if _native.C is None:
        pytest.skip(_native.WHY_NOT)
    monkeypatch.setattr("elmo_fast.ops.is_faster_on_cpu", lambda precision: faster)
    assert any(line.startswith("SLOWER bfloat16") for line in backend_lines("bfloat16", "auto", "adamw", CPU)) != faster
