"""ELMO_FAST_CHECK_FINITE=1: every op checks its arguments and results for NaN and infinity and raises an error."""

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError


def wanted() -> bool:
    """Whether the environment asks for it. Checking waits for the device: use it to find a fault, not in a long run."""
    return not torch.compiler.is_compiling() and os.environ.get("ELMO_FAST_CHECK_FINITE") == "1"


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """All tensors within, each with its name: that of its field, where it is in a named tuple."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None) or [f"{name}[{i}]" for i in range(len(value))]
        for each, known in zip(value, names, strict=True):
            yield from _tensors(each, known)


def _first_not_finite(values: Any, name: str) -> str | None:
    for where, tensor in _tensors(values, name):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return where
    return None


class Checked:
    """A backend whose `run` raises ElmoFastError when an argument or a result holds NaN or infinity."""

    def __init__(self, op: str, backend: Any) -> None:
        self._op, self._backend = op, backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def run(self, *arguments: Any) -> Any:
        """Runs the backend between two checks."""
        given = _first_not_finite(arguments, "arguments")
        if given is not None:
            raise ElmoFastError(f"{self._op}: {given} holds NaN or infinity before the op; look at what made it")
        results = self._backend.run(*arguments)
        made = _first_not_finite(results, "results")
        if made is not None:
            raise ElmoFastError(
                f"{self._op}: {made} holds NaN or infinity though all arguments are finite; "
                "a sum overflowed: look for very large weights or inputs, or take a wider precision"
            )
        return results
