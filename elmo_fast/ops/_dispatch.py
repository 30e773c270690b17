"""Registry of the ops, and the only place where a backend is chosen: the first that can serve.

The others give a reason in one sentence.
"""

import functools
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from elmo_fast import op_choices
from elmo_fast.devices import device_called
from elmo_fast.errors import ElmoFastError, PerformanceWarning, check_choice
from elmo_fast.ops import _checks, _native, _triton
from elmo_fast.ops._cpu_products import why_slower_on_cpu
from elmo_fast.ops._precision import check_precision

BACKENDS = tuple(name for name in op_choices.BACKEND_CHOICES if name != "auto")
Unsupported = Callable[[torch.device, torch.dtype, str], str | None]


class _Kind(NamedTuple):
    """Properties shared by all backends of one name."""

    device: str | None
    """kind of device they are built for; None: all. A refusal elsewhere slows nothing down, so it causes no warning"""
    why_never: Callable[[], str | None]
    """() -> one sentence why this installation lacks them, whatever the device, or None"""
    unsupported: Unsupported
    """default for a backend module without its own"""


_KINDS = {
    "native": _Kind("cpu", lambda: _native.WHY_NOT, _native.unsupported),
    "cuda": _Kind("cuda", _native.why_no_cuda, _native.cuda_unsupported),
    "triton": _Kind("cuda", _triton.why_never, _triton.unsupported),
    "reference": _Kind(None, lambda: None, lambda device, dtype, precision: None),
}


class Implementation(NamedTuple):
    """Implementation of an op by one backend."""

    module: Any
    """module with `run` and the other functions that the op calls"""
    unsupported: Unsupported
    """(device, dtype, precision) -> one sentence why it cannot serve them, or None"""
    device: str | None
    """kind of device it is built for; None: all"""


REGISTRY: dict[str, Mapping[str, Implementation]] = {}
PLAIN: set[str] = set()
INT8: set[str] = set()


def register(package: str, *backends: str, plain: bool = False, int8: bool = False) -> None:
    """Register an op: a package with the op's name, and a module in it for each of its backends.

    plain: a GPU kernel would be no faster than plain torch, so there is no warning if it is missing. int8: the op
    supports that precision.
    """
    op = package.rpartition(".")[2]
    if int8:
        INT8.add(op)
    if plain:
        PLAIN.add(op)
    REGISTRY[op] = {name: _implementation(package, name) for name in BACKENDS if name in backends}


def _implementation(package: str, backend: str) -> Implementation:
    """Import a backend's module; without Triton, a backend that imports it has no module and always refuses."""
    try:
        module = importlib.import_module(f"{package}.{backend}")
    except ImportError:
        if (why := _triton.WHY_NOT) is None:
            raise
        return Implementation(None, lambda device, dtype, precision: why, _KINDS[backend].device)
    kind = _KINDS[backend]
    return Implementation(module, getattr(module, "unsupported", kind.unsupported), kind.device)


def op_names() -> list[str]:
    """Return the names of all registered ops."""
    return sorted(REGISTRY)


def backends_of(op: str) -> Mapping[str, Implementation]:
    """Return the backends of an op, in the order in which they are tried; ElmoFastError if the op is unknown."""
    if op not in REGISTRY:
        check_choice("op", op, op_names())
    return REGISTRY[op]


class Choice(NamedTuple):
    """Backend chosen for an op, and why the ones tried before it cannot serve."""

    backend: str
    """name of the backend that runs"""
    refusals: dict[str, str]
    """backend tried before -> one sentence why it cannot serve"""


def made_for(backend: str, device: torch.device) -> bool:
    """Return whether a backend is built for this kind of device (the reference is for all)."""
    return _KINDS[backend].device in (None, device.type)


def backend_for(op: str, backend: str) -> str:
    """Return `backend` if `op` has a backend of that name, else "auto".

    For a caller that passes one name to several ops. Raises ElmoFastError if the op is unknown.
    """
    return backend if backend in backends_of(op) else "auto"


def why_never(op: str, backend: str) -> str | None:
    """Explain in one sentence why this backend of `op` can run on no device of this installation, or return None.

    Also returns None for a backend that the op lacks, for which `backend_for` returns "auto".
    """
    return _KINDS[backend].why_never() if backend in backends_of(op) else None


def explain(
    op: str, device: torch.device | str, dtype: torch.dtype = torch.float32, precision: str = "float32"
) -> Choice:
    """Return the backend that backend="auto" would choose for `op`, and why not the ones before it.

    Args:
        op: name of the op, one of `op_names()`.
        device: device of the tensors: "cpu", "cuda", "cuda:1" or a torch.device; this machine need not have it.
        dtype: dtype of the tensors.
        precision: "float32" | "bfloat16" | "float16", for some ops also "int8".

    Raises:
        ElmoFastError: an unknown op, device or precision; an op that no backend serves there.
    """
    device = device_called(device)
    backends_of(op)
    check_precision(precision, int8=op in INT8)
    return _choose(op, device, dtype, precision)


def _choose(op: str, device: torch.device, dtype: torch.dtype, precision: str) -> Choice:
    refusals: dict[str, str] = {}
    for name, implementation in REGISTRY[op].items():
        reason = implementation.unsupported(device, dtype, precision)
        if reason is None and precision == "int8" and name == "reference" and device.type not in ("cpu", "meta"):
            reason = 'the reference multiplies int8 in float64, so it runs only when named; use precision="float16"'
        if reason is None and implementation.device not in (None, device.type):
            reason = f"backend {name!r} runs on {device.type} only when it is named, as tests do"
        if reason is None:
            return Choice(name, refusals)
        refusals[name] = reason
    raise ElmoFastError(f"{op}: no backend serves this: " + "; ".join(f"{n}: {r}" for n, r in refusals.items()))


@functools.cache
def warn_of_precision(sentence: str) -> None:
    """Issue one PerformanceWarning per sentence for all ops, at the line that called an op's public function."""
    warnings.warn(sentence, PerformanceWarning, stacklevel=4)


@functools.cache
def warn_once(op: str, backend: str, reasons: str) -> None:
    """Issue one PerformanceWarning for equal arguments, at the line that called the op's public function."""
    warnings.warn(f"{op}: using the slower backend {backend!r}, because {reasons}", PerformanceWarning, stacklevel=4)


def _slower(op: str, device: torch.device, refusals: Mapping[str, str]) -> list[str]:
    """Return why faster backends of `op` for this device cannot serve; if none exists, one sentence saying so."""
    slower = [why for name, why in refusals.items() if made_for(name, device)]
    has_kernel = any(made_for(name, device) for name in REGISTRY[op] if name != "reference")
    if slower or has_kernel or op in PLAIN or device.type in ("cpu", "meta"):
        return slower
    return [f"it has no kernel for {device.type} yet"]


def _of_all(op: str, slower: list[str]) -> str:
    """Return the name for a warning: the op, or all ops if they share the reason, which is then reported once."""
    return "all C++ ops" if slower == [_native.WHY_NOT] else op


def suppress_warnings(op: str, choice: Choice, device: torch.device, precision: str) -> None:
    """Suppress the warnings for a choice whose refusals and precision the caller reports itself."""
    slower = [why for name, why in choice.refusals.items() if made_for(name, device)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        warn_once(_of_all(op, slower), choice.backend, "; ".join(slower))
        if (why := why_slower_on_cpu(precision)) is not None:
            warn_of_precision(why)


def select(op: str, backend: str, device: torch.device, dtype: torch.dtype, precision: str = "float32") -> Any:
    """Return the module that serves `op`: the named backend or, for "auto", the first that can.

    Raises ElmoFastError if the name is unknown or the named backend cannot serve.
    """
    known, compiling = REGISTRY[op], torch.compiler.is_compiling()
    if backend == "auto":
        name, refusals = _choose(op, device, dtype, precision)
        slower = _slower(op, device, refusals) if refusals or name == "reference" else []
        if slower and not compiling:
            warn_once(_of_all(op, slower), name, "; ".join(slower))
        rounds = name == "native" and precision != "float32"
        if rounds and not compiling and (slow := why_slower_on_cpu(precision)):
            warn_of_precision(slow)
    elif backend not in known:
        raise ElmoFastError(f"{op}: backend must be one of auto, {', '.join(known)}; got {backend!r}")
    else:
        name, reason = backend, known[backend].unsupported(device, dtype, precision)
        if reason is not None:
            raise ElmoFastError(f"{op}: backend {backend!r} cannot serve this: {reason}")
    module = known[name].module
    checks = not compiling and os.environ.get("ELMO_FAST_CHECK_FINITE") == "1"
    return _checks.CheckedForFinite(op, module) if checks else module
