"""The backends as parameters of tests: each with the reason why it cannot run here, and where its tensors live."""

import contextlib
from collections.abc import Iterator

import pytest
import torch

from elmo_fast.ops import _dispatch

HAS_CUDA = torch.cuda.is_available()
GPU = ("cuda", "triton")


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


@contextlib.contextmanager
def on(device: torch.device) -> Iterator[None]:
    """What torch's factories make within lives on `device`, unless they are told another; generators too.

    torch.device as a context leaves torch.Generator() on the CPU, and torch.randn on a GPU refuses such a one.
    """
    with torch.device(device), pytest.MonkeyPatch.context() as patch:
        if device.type != "cpu":
            patch.setattr(torch, "Generator", generators_on(device))
        yield


def generators_on(default: torch.device) -> type:
    """torch.Generator, on `default` unless told another device; any generator is an instance of it."""

    class Any(type(torch._C.Generator)):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, torch._C.Generator)

    class Generator(torch._C.Generator, metaclass=Any):
        def __new__(cls, device: torch.device | str = default) -> "Generator":
            return super().__new__(cls, device)

    return Generator
