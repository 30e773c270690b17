"""Choice of an op's backend: the first that can serve; the others give a reason in one sentence.

torch's dispatcher has the kernels, by device: C++ those of the CPU, Triton those of a GPU. Here is what it does not
know: which backends an op has, why one cannot serve, and that one was named.
"""

import functools
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from elmo_fast import op_choices
from elmo_fast._docstrings import document
from elmo_fast._runtime.devices import device_called
from elmo_fast.errors import ElmoFastError, PerformanceWarning, check_choice
from elmo_fast.ops import _autograd, _native, _schemas, _triton
from elmo_fast.ops._checks import checked
from elmo_fast.ops._native import why_slower_on_cpu
from elmo_fast.ops._precision import check_precision

BACKENDS = tuple(name for name in op_choices.BACKEND_CHOICES if name != "auto")
Unsupported = Callable[[torch.device, torch.dtype, str], str | None]

# Kind of device that a backend is built for; None: all. A refusal elsewhere slows nothing down: no warning.
_DEVICES = {"native": "cpu", "triton": "cuda", "reference": None}
_UNSUPPORTED: dict[str, Unsupported] = {
    "native": _native.unsupported,
    "triton": _triton.unsupported,
    "reference": lambda device, dtype, precision: None,
}


class Op(NamedTuple):
    """What `register` was told of an op."""

    unsupported: Mapping[str, Unsupported]
    """backend, in the order in which they are tried -> (device, dtype, precision) -> why it cannot serve, or None"""
    int8: bool


OPS: dict[str, Op] = {}


def register(
    op: str,
    *backends: str,
    kernels: str | None = None,
    int8: bool = False,
    **unsupported: Unsupported,
) -> None:
    """Register an op's backends besides the reference, and import its Triton kernels if Triton is there.

    Args:
        op: name of the op.
        backends: "native", "triton".
        kernels: module that implements it in Triton.
        int8: the op supports that precision.
        unsupported: by backend, in place of the backend's own: (device, dtype, precision) -> why it cannot serve them.
    """
    if kernels is not None and _triton.WHY_NOT is None:
        importlib.import_module(kernels)
    known = _UNSUPPORTED | unsupported
    names = [name for name in BACKENDS if name in (*backends, "reference")]
    OPS[op] = Op({name: known[name] for name in names}, int8)


def op_names() -> list[str]:
    """Return the names of all registered ops."""
    return sorted(OPS)


def backends_of(op: str) -> list[str]:
    """Return the backends of an op, in the order in which they are tried; ElmoFastError if the op is unknown."""
    if op not in OPS:
        check_choice("op", op, op_names())
    return list(OPS[op].unsupported)


def backend_for(op: str, backend: str) -> str:
    """Return `backend` if `op` has a backend of that name, else "auto".

    For a caller that passes one name to several ops. Raises ElmoFastError if the op is unknown.
    """
    return backend if backend in backends_of(op) else "auto"


def unsupported(op: str, backend: str, device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Explain in one sentence why this backend of `op` cannot serve these, or return None."""
    return OPS[op].unsupported[backend](device, dtype, precision)


@document
class Choice(NamedTuple):
    """Backend chosen for an op, and why the ones tried before it cannot serve."""

    backend: str
    """name of the backend that runs"""
    refusals: dict[str, str]
    """backend tried before -> one sentence why it cannot serve"""


def made_for(backend: str, device: torch.device) -> bool:
    """Return whether a backend is built for this kind of device (the reference is for all)."""
    return _DEVICES[backend] in (None, device.type)


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
    check_precision(precision, int8=OPS[op].int8)
    return _choose(op, device, dtype, precision)


def _choose(op: str, device: torch.device, dtype: torch.dtype, precision: str) -> Choice:
    refusals: dict[str, str] = {}
    for name, why_not in OPS[op].unsupported.items():
        reason = why_not(device, dtype, precision)
        if reason is None and precision == "int8" and name == "reference" and device.type not in ("cpu", "meta"):
            reason = 'the reference multiplies int8 in float64, so it runs only when named; use precision="float16"'
        if reason is None and _DEVICES[name] not in (None, device.type):
            reason = f"backend {name!r} runs on {device.type} only when it is named, as tests do"
        if reason is None:
            return Choice(name, refusals)
        refusals[name] = reason
    raise ElmoFastError(f"{op}: no backend serves this: " + "; ".join(f"{n}: {r}" for n, r in refusals.items()))


@functools.cache
def warn_once(sentence: str) -> None:
    """Issue one PerformanceWarning per sentence for all ops, at the line that called an op's public function."""
    warnings.warn(sentence, PerformanceWarning, stacklevel=4)


def select(op: str, backend: str, device: torch.device, dtype: torch.dtype, precision: str = "float32") -> str:
    """Return the backend that serves `op`: the named one or, for "auto", the first that can.

    Raises ElmoFastError if the name is unknown or the named backend cannot serve.
    """
    known = OPS[op].unsupported
    if backend != "auto":
        if backend not in known:
            raise ElmoFastError(f"{op}: backend must be one of auto, {', '.join(known)}; got {backend!r}")
        if (reason := known[backend](device, dtype, precision)) is not None:
            raise ElmoFastError(f"{op}: backend {backend!r} cannot serve this: {reason}")
        return backend
    if device.type == "cpu" and "native" not in known:
        return "reference"  # the intended way: plain torch is as fast there
    name, refusals = _choose(op, device, dtype, precision)
    if torch.compiler.is_compiling():
        return name
    if name == "reference":
        reasons = [why for other, why in refusals.items() if made_for(other, device)]
        if not reasons and device.type not in ("cpu", "meta"):
            reasons = [f"it has no kernel for {device.type} yet"]
        if reasons:  # one that all ops share is reported once
            who = "all C++ ops" if reasons == [_native.WHY_NOT] else op
            warn_once(f"{who}: using the slower backend {name!r}, because {'; '.join(reasons)}")
    if name == "native" and precision != "float32" and (slow := why_slower_on_cpu(precision)):
        warn_once(slow)
    return name


_MAY_OVERFLOW = {"square_norm", "merged_square_norm"}  # the caller looks at the norm
_kernels: dict[tuple[str, str], tuple[Any, Any]] = {}  # torch.compile warns about functools.cache, not of a dict


def registered_op(op: str, backend: str) -> Callable[..., Any]:
    """Return the registered op `op` (or a part of an op, such as "square_norm"), as `backend` has it, with gradients.

    torch's dispatcher chooses the kernel by the tensors' device. Only Triton's interpreter is asked for by name.
    """
    both = _kernels.get((op, backend))
    if both is None:
        by_triton = backend == "triton" and _triton.implements(op)
        namespace = _triton.NAMESPACE if by_triton else _schemas.NAMESPACE
        registered = _schemas.overload(op, namespace)
        both = _kernels[op, backend] = registered, _autograd.FORMULAS.get(f"{namespace}::{op}", registered)
    run = both[0] if torch.compiler.is_compiling() else both[1]  # torch.compile takes an op as it is
    if os.environ.get("ELMO_FAST_CHECK_FINITE") != "1" or op in _MAY_OVERFLOW:
        return run
    return checked(op, run, list(_schemas.arguments_of(op)._fields))
