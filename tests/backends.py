"""The backends as parameters of tests: each with the reason why it cannot run here, and where its tensors live."""

import pytest
import torch

from elmo_fast.ops import _dispatch

HAS_CUDA = torch.cuda.is_available()
GPU = ("cuda", "triton", "triton_persistent")


def device_of(backend: str) -> torch.device:
    """A GPU for the GPU's backends where there is one; else the CPU (Triton's interpreter: tests/conftest.py)."""
    return torch.device("cuda" if backend in GPU and HAS_CUDA else "cpu")


def backends(op: str, *, reference: bool = False) -> list:
    """One parameter per backend that `op` has, marked to skip with the backend's own sentence."""
    found = []
    for name, module in _dispatch._REGISTRY[op].items():
        if name == "reference" and not reference:
            continue
        why = module.unsupported(device_of(name), torch.float32, "float32")
        found.append(pytest.param(name, marks=pytest.mark.skipif(why is not None, reason=str(why))))
    return found


def needs(op: str, backend: str, precision: str) -> None:
    """Skips the test, with the backend's own sentence, where `backend` cannot serve `precision` here."""
    why = _dispatch._REGISTRY[op][backend].unsupported(device_of(backend), torch.float32, precision)
    if why is not None:
        pytest.skip(why)
