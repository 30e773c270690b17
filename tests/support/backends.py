"""The backends as parameters of tests: each with the reason why it cannot run here, and where its tensors live."""

import contextlib
import functools

import numpy as np
import pytest
import torch

from elmo_fast.ops import _dispatch, _triton

HAS_CUDA = torch.cuda.is_available()
GPU = ("triton",)

# Tests whose processes train in a fork of this one.
trains_in_a_fork = pytest.mark.skipif(HAS_CUDA, reason="with a GPU, autograd runs in no fork of a process that used it")


def device_of(backend: str) -> torch.device:
    """A GPU for the GPU's backends where there is one; else the CPU (Triton's interpreter: tests/conftest.py)."""
    return torch.device("cuda" if backend in GPU and HAS_CUDA else "cpu")


def on_device_of(backend: str) -> contextlib.AbstractContextManager:
    """New tensors are where the backend runs.

    On a CPU they are without a mode, which intercepts every call of torch: slow, and now and then torch.compile fails.
    """
    device = device_of(backend)
    return contextlib.nullcontext() if device.type == "cpu" else device


def backends(op: str, *, reference: bool = False, precision: str = "float32", only: str | None = None) -> list:
    """One parameter per backend that `op` has, or for that one, marked to skip with the backend's own sentence."""
    actual = []
    for name in _dispatch.backends_of(op):
        if (name == "reference" and not reference) or name != (only or name):
            continue
        why = _dispatch.unsupported(op, name, device_of(name), torch.float32, precision)
        actual.append(pytest.param(name, marks=pytest.mark.skipif(why is not None, reason=str(why))))
    return actual


def needs(op: str, backend: str, precision: str = "float32", dtype: torch.dtype = torch.float32) -> None:
    """Skips the test, with the backend's own sentence, where `backend` cannot serve `precision` and `dtype` here."""
    why = _dispatch.unsupported(op, backend, device_of(backend), dtype, precision)
    if why is not None:
        pytest.skip(why)


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None) -> None:
    """A GPU of this capability (None: no GPU), a torch for CUDA and a Triton that compiles, as far as these tell."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(_triton, "_CAPABILITIES", {})
    monkeypatch.setattr(_triton, "WHY_NOT", None)
    monkeypatch.setattr(_triton, "INTERPRETED", False)


@functools.cache
def rows_depend_on_their_place() -> bool:
    """True if numpy's product of a row depends on the row's position, as with some processors' OpenBLAS."""
    draw = np.random.default_rng(0)
    for rows in (16, 32, 64):
        a, b = (draw.standard_normal(shape, dtype=np.float32) for shape in ((rows, 32), (32, 64)))
        order = draw.permutation(rows)
        if not np.array_equal(a[order] @ b, (a @ b)[order]):
            return True
    return False


def needs_rows_alone(backend: str) -> None:
    """Skips the test of Triton's interpreter, whose products are numpy's, where these depend on a row's place."""
    if backend == "triton" and _triton.INTERPRETED and rows_depend_on_their_place():
        pytest.skip("numpy's products, of which Triton's interpreter makes its own, depend on a row's place here")
