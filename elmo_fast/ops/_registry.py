"""The registered ops and their backends."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from elmo_fast import op_choices
from elmo_fast.errors import check_choice
from elmo_fast.ops import _native, _triton

BACKENDS = tuple(name for name in op_choices.BACKEND_CHOICES if name != "auto")
Unsupported = Callable[[torch.device, torch.dtype, str], str | None]
# For a backend module without `unsupported`: plain torch supports every device and dtype.
_ASKED: dict[str, Unsupported] = {
    "native": _native.unsupported,
    "cuda": _native.cuda_unsupported,
    "triton": _triton.unsupported,
    "reference": lambda device, dtype, precision: None,
}


class Implementation(NamedTuple):
    """An op by one backend."""

    module: Any
    """has `run`, and the other functions that the op calls"""
    unsupported: Unsupported
    """(device, dtype, precision) -> one sentence that says why it cannot serve them, or None"""


REGISTRY: dict[str, Mapping[str, Implementation]] = {}
PLAIN: set[str] = set()
INT8: set[str] = set()


def register(package: str, *backends: str, plain: bool = False, int8: bool = False) -> None:
    """Makes an op known: a package of the op's name, with a module for each of its backends.

    plain: a GPU kernel would be no faster than plain torch, so no warning says that there is none. int8: the op takes
    that precision.
    """
    op = package.rpartition(".")[2]
    if int8:
        INT8.add(op)
    if plain:
        PLAIN.add(op)
    REGISTRY[op] = {name: _implementation(package, name) for name in BACKENDS if name in backends}


def _implementation(package: str, backend: str) -> Implementation:
    """The backend's module; without Triton, a backend that imports it has no module and always refuses."""
    try:
        module = importlib.import_module(f"{package}.{backend}")
    except ImportError:
        if (why := _triton.WHY_NOT) is None:
            raise
        return Implementation(None, lambda device, dtype, precision: why)
    return Implementation(module, getattr(module, "unsupported", None) or _ASKED[backend])


def op_names() -> list[str]:
    """The names of all registered ops."""
    return sorted(REGISTRY)


def backends_of(op: str) -> Mapping[str, Implementation]:
    """The backends of an op, in the order in which they are asked; ElmoFastError if there is no such op."""
    check_choice("op", op, op_names())
    return REGISTRY[op]
