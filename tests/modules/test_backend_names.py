"""One list of backends and precisions serves ops, modules and configurations."""

import pytest
import torch

from elmo_fast import BiLM, ScalarMix
from elmo_fast.errors import ElmoFastError
from elmo_fast.modules.projected_lstm import ProjectedLSTM
from elmo_fast.op_choices import BACKEND_CHOICES
from elmo_fast.ops import _dispatch, _native, _triton
from tests.support.backends import on_device_of


def lstm(backend):
    torch.manual_seed(0)
    module = ProjectedLSTM(4, 4, 6, True, 0.0, 3.0, 3.0, backend=backend)
    return module(torch.ones(2, 3, 4), [3, 2])[0]


def mix(backend):
    return ScalarMix(2, backend=backend)([torch.ones(2, 3, 4), torch.zeros(2, 3, 4)])


@pytest.mark.parametrize(("op", "module"), [("projected_lstm", lstm), ("scalar_mix", mix)])
@pytest.mark.parametrize("backend", BACKEND_CHOICES)
def test_a_module_takes_every_name_and_auto_where_its_op_lacks_the_backend(op, module, backend):
    """Instead of failing at the first batch."""
    if backend in _dispatch.backends_of(op) and backend not in ("native", "reference"):
        pytest.skip("a GPU's")
    with on_device_of(backend):
        torch.testing.assert_close(module(backend), module("auto"))


@pytest.mark.parametrize("backend", ["native", "triton"])
def test_a_missing_backend_is_an_error_when_the_model_is_created(backend, files, monkeypatch):
    """And not where a device may still serve it: the model may be moved there."""
    options_file, weight_file = files()
    never = "no compiler built it; reinstall"
    monkeypatch.setattr(_native, "WHY_NOT", never if backend == "native" else None)
    monkeypatch.setattr(_triton, "WHY_NOT", never if backend == "triton" else None)
    monkeypatch.setattr(_triton, "INTERPRETED", True)  # which could run somewhere
    with pytest.raises(
        ElmoFastError, match=f"backend '{backend}' can run .* on no device of this installation .no compiler"
    ):
        BiLM(options_file, weight_file, backend=backend)
    for module in (_native, _triton):
        monkeypatch.setattr(module, "WHY_NOT", None)
    BiLM(options_file, weight_file, backend=backend)
