"""Has a GPU's kernels checked when they are first chosen, and says why one is refused (docs/gpu.md)."""

import functools
import os

import torch

from elmo_fast.ops import _card, _triton, _verdicts
from elmo_fast.ops._check import GRAPH, Unit
from elmo_fast.ops._check_once import check_all, tell
from elmo_fast.ops._registry import REGISTRY, multiplies
from elmo_fast.ops._verdicts import VARIABLE, numbered, sentence

CHECKED_TOGETHER = ("cuda", "triton")
CHECKED = (*CHECKED_TOGETHER, GRAPH)
# Arguments of `refusal`, and the switch -> its answer, which does not change within a process.
_settled: dict[tuple[str, str, torch.device, str, str | None], str | None] = {}


def refusal(op: str, backend: str, device: torch.device, precision: str) -> str | None:
    """One sentence if this backend's kernels failed their check on this GPU, else None; checks what was never checked.

    Raises ElmoFastError if ELMO_FAST_GPU_CHECK is not 0, 1 or always.
    """
    asked = op, backend, device, precision, os.environ.get(VARIABLE)
    if asked in _settled:
        return _settled[asked]
    if backend not in CHECKED or not _card.present(device) or (switch := _verdicts.switch()) == "0":
        return None
    unit, device = _unit(op, backend, precision), numbered(device)
    if (device, unit) not in _verdicts.known:
        with _verdicts.lock:
            found = _verdicts.found(unit, device, always=switch == "always")
            if found is None and not _nothing_runs():
                if _capturing():
                    tell(f"{unit}: runs unchecked in this CUDA graph; call the op once before the capture")
                    return None
                check_all(_with(unit, device), device, always=switch == "always")
    if (device, unit) in _verdicts.known and asked[2] == device:
        _settled[asked] = sentence(unit, device)
    return sentence(unit, device)


def known_refusal(op: str, backend: str, device: torch.device, precision: str) -> str | None:
    """As `refusal`, from existing verdicts only: checks nothing."""
    if backend not in CHECKED or not _card.present(device) or _verdicts.switch() == "0":
        return None
    unit, device = _unit(op, backend, precision), numbered(device)
    with _verdicts.lock:
        _verdicts.found(unit, device, always=False)
    return sentence(unit, device)


# torch.compile calls these while it traces, and takes the results as constants.
for _asked in (refusal, known_refusal):
    _asked._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _unit(op: str, backend: str, precision: str) -> Unit:
    return Unit(op, backend, precision if multiplies(op) else "float32")


def _nothing_runs() -> bool:
    """Whether there is nothing to check, as launches are only recorded or tensors have no values."""
    fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return _triton.is_recording() or (fake and not torch.compiler.is_compiling())


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _with(unit: Unit, device: torch.device) -> list[Unit]:
    """The unit, and all that are likely to be needed with it: those of its precision, and those without one.

    The CUDA graphs of higher layers are checked only when asked for, because not everyone trains.
    """
    found = [unit]
    for op, backends in REGISTRY.items():
        for backend in CHECKED_TOGETHER:
            if backend not in backends or not (multiplies(op) <= multiplies(unit.op)):
                continue
            other = _unit(op, backend, unit.precision)
            if backends[backend].unsupported(device, torch.float32, other.precision) is None:
                found.append(other)
    if Unit("projected_lstm", "triton", unit.precision) in found:
        found.append(Unit("projected_lstm", GRAPH, unit.precision))
    return list(dict.fromkeys(found))
