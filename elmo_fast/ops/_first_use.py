"""When a GPU's kernel is first chosen on a card: has it checked there, and tells why one is refused (docs/gpu.md)."""

import contextlib
import datetime
import functools
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import TypedDict

import torch

from elmo_fast.errors import check_choice
from elmo_fast.lock import only_one
from elmo_fast.ops import _card, _check_processes, _triton
from elmo_fast.ops._card_files import CardFile
from elmo_fast.ops._check import GRAPH, Unit
from elmo_fast.ops._registry import REGISTRY, multiplies

VARIABLE = "ELMO_FAST_GPU_CHECK"
# The persistent scan is checked where it is asked for: "auto" takes it only where it was measured.
BACKENDS = ("cuda", "triton")
CHECKED = (*BACKENDS, "triton_persistent", GRAPH)


class Verdict(TypedDict):
    """Of one unit of the check."""

    why: str | None
    """why it is refused, or None where it agrees"""
    seconds: float
    """that the check took"""
    date: str


_lock = threading.RLock()
_files: dict[torch.device, CardFile[Verdict]] = {}
_known: dict[tuple[torch.device, Unit], Verdict | None] = {}  # None: it could not be checked
_told: set[str] = set()
# What `refusal` was asked, with the switch -> its answer, which no longer changes in this process.
_settled: dict[tuple[str, str, torch.device, str, str | None], str | None] = {}


def refusal(op: str, backend: str, device: torch.device, precision: str) -> str | None:
    """One sentence if this backend's kernels failed their check on this card, else None; checks what never was.

    Raises ElmoFastError if ELMO_FAST_GPU_CHECK is not 0, 1 or always.
    """
    asked = op, backend, device, precision, os.environ.get(VARIABLE)
    if asked in _settled:
        return _settled[asked]
    if backend not in CHECKED or not _card.present(device) or (switch := _switch()) == "0":
        return None
    unit, device = _unit(op, backend, precision), _numbered(device)
    if (device, unit) not in _known:
        with _lock:
            found = _found(unit, device, always=switch == "always")
            if found is None and not _nothing_runs():
                if _capturing():
                    _tell(f"{unit}: runs unchecked in this CUDA graph; call the op once before the capture")
                    return None
                _check_all(_with(unit, device), device, always=switch == "always")
    if (device, unit) in _known and asked[2] == device:
        _settled[asked] = _sentence(unit, device)
    return _sentence(unit, device)


def known_refusal(op: str, backend: str, device: torch.device, precision: str) -> str | None:
    """As `refusal`, by the verdicts that exist: checks nothing."""
    if backend not in CHECKED or not _card.present(device) or _switch() == "0":
        return None
    unit, device = _unit(op, backend, precision), _numbered(device)
    with _lock:
        _found(unit, device, always=False)
    return _sentence(unit, device)


# torch.compile calls them as they are while it traces, and takes the results as constants: what it traces will run.
for _asked in (refusal, known_refusal):
    _asked._dynamo_marked_constant = True  # type: ignore[attr-defined]


def report(device: torch.device) -> list[str]:
    """What is known of this card's kernels, in lines; none where the device is no GPU of this machine."""
    if not _card.present(device):
        return []
    if _switch() == "0":
        return [f"kernels are not checked on this GPU: {VARIABLE}=0"]
    with _lock:
        verdicts, path = file_of(device).read(), file_of(device).path
    if not verdicts:
        return ["kernels were never checked on this GPU with this driver, torch and Triton: the first use does that"]
    refused = [f"refused: {name}: {each['why']}" for name, each in verdicts.items() if each["why"] is not None]
    last = max(each["date"] for each in verdicts.values())
    return [f"{len(verdicts)} kernels checked on this GPU, {len(refused)} refused, last on {last} ({path})", *refused]


def _switch() -> str:
    value = os.environ.get(VARIABLE, "1")
    check_choice(VARIABLE, value, ("0", "1", "always"))
    return value


@functools.cache
def _unit(op: str, backend: str, precision: str) -> Unit:
    return Unit(op, backend, precision if multiplies(op) else "float32")


def _numbered(device: torch.device) -> torch.device:
    """The device with its index."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


def file_of(device: torch.device) -> CardFile[Verdict]:
    """The verdicts on this card."""
    device = _numbered(device)
    if device not in _files:
        _files[device] = CardFile(_card.identity(device), Verdict, "verdicts")
    return _files[device]


def _found(unit: Unit, device: torch.device, *, always: bool) -> Verdict | None:
    """The verdict of this process or, unless `always`, of an earlier one."""
    if (device, unit) not in _known and not always:
        verdicts = file_of(device).read()
        if str(unit) in verdicts:
            _known[device, unit] = verdicts[str(unit)]
    return _known.get((device, unit))


def _sentence(unit: Unit, device: torch.device) -> str | None:
    verdict = _known.get((device, unit))
    if verdict is None or verdict["why"] is None:
        return None
    what = "replaying a CUDA graph" if unit.backend == GRAPH else f"the backend {unit.backend!r}"
    gpu = _card.identity(device)["gpu"]
    return (
        f"{what} failed its check on this {gpu} at {unit.precision}: {verdict['why']} ({VARIABLE}=always checks again)"
    )


def _nothing_runs() -> bool:
    """Whether launches are only recorded, or tensors have no values: then there is nothing to check."""
    fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return _triton.is_recording() or (fake and not torch.compiler.is_compiling())


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _with(unit: Unit, device: torch.device) -> list[Unit]:
    """The unit, and all that are likely to be asked for with it: those of its precision, and those without one.

    What higher layers replay is checked when it is asked for: not everyone trains.
    """
    found = [unit]
    for op, backends in REGISTRY.items():
        for backend in BACKENDS:
            if backend not in backends or not (multiplies(op) <= multiplies(unit.op)):
                continue
            other = _unit(op, backend, unit.precision)
            if backends[backend].unsupported(device, torch.float32, other.precision) is None:
                found.append(other)
    if Unit("projected_lstm", "triton", unit.precision) in found:
        found.append(Unit("projected_lstm", GRAPH, unit.precision))
    return list(dict.fromkeys(found))


def _check_all(units: list[Unit], device: torch.device, *, always: bool) -> None:
    """Checks those of the units of which there is no verdict, one process at a time, and keeps what is found."""
    file = file_of(device)
    with _alone(file):
        if not always:
            _known.update({(device, unit): found for unit in units if (found := file.read().get(str(unit)))})
        new = [unit for unit in units if (device, unit) not in _known]
        if not new:
            return
        verdicts = _verdicts(new, device)
        _known.update({(device, unit): verdicts.get(unit) for unit in new})
        file.add({str(unit): verdict for unit, verdict in verdicts.items()})


@contextlib.contextmanager
def _alone(file: CardFile[Verdict]) -> Iterator[None]:
    """Lets one process at a time into the block, if the folder can hold a lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file.path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_one(file.path.with_suffix(".lock"), _say_waiting))
        yield


def _verdicts(units: list[Unit], device: torch.device) -> dict[Unit, Verdict]:
    """What the check finds, with its progress on stderr; without the units that could not be checked, of which a
    warning tells."""
    gpu, start, done = _card.identity(device)["gpu"], time.monotonic(), 0
    _say(f"checking {len(units)} GPU kernels on this {gpu}, once for its driver, torch, Triton and their sources")

    def answered(unit: Unit) -> None:
        nonlocal done
        done += 1
        _say(f"checked {done} of {len(units)}: {unit}", passing=True)

    found = _check_processes.answers(units, device, answered)
    seconds, date = time.monotonic() - start, datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    for why in dict.fromkeys(answer.unable for answer in found.values() if answer.unable is not None):
        _tell(f"some GPU kernels run unchecked on this {gpu}: {why}")
    refused = [unit for unit in units if found[unit].why is not None]
    _say(f"checked in {seconds:.1f} s: {'; '.join(map(str, refused)) + ' refused' if refused else 'none is refused'}")
    each = round(seconds / len(units), 2)
    return {
        unit: Verdict(why=answer.why, seconds=each, date=date)
        for unit, answer in found.items()
        if answer.unable is None
    }


def _tell(sentence: str) -> None:
    """A warning, once."""
    if sentence not in _told:
        _told.add(sentence)
        warnings.warn(sentence, stacklevel=2)


def _say_waiting() -> None:
    _say("another process is checking the GPU kernels; waiting for its verdict")


def _say(line: str, *, passing: bool = False) -> None:
    """A line on stderr; one that passes is overwritten by the next, and shown on a terminal alone."""
    if sys.stderr is None or (passing and not sys.stderr.isatty()):
        return
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}elmo_fast: {line}", end="" if passing else "\n", file=sys.stderr, flush=True)
