"""What is known of a card's kernels: the verdicts of their check, in this process and kept (docs/gpu.md)."""

import os
import threading
from typing import TypedDict

import torch

from elmo_fast.errors import check_choice
from elmo_fast.ops import _card
from elmo_fast.ops._card_files import CardFile
from elmo_fast.ops._check import GRAPH, Unit

VARIABLE = "ELMO_FAST_GPU_CHECK"


class Verdict(TypedDict):
    """Of one unit of the check."""

    why: str | None
    """why it is refused, or None where it agrees"""
    seconds: float
    """that the check took"""
    date: str


lock = threading.RLock()
# What this process knows; None: it could not be checked.
known: dict[tuple[torch.device, Unit], Verdict | None] = {}
_files: dict[torch.device, CardFile[Verdict]] = {}


def switch() -> str:
    """0: nothing is checked; 1: what never was; always: in each process anew. ElmoFastError if it is none of these."""
    value = os.environ.get(VARIABLE, "1")
    check_choice(VARIABLE, value, ("0", "1", "always"))
    return value


def numbered(device: torch.device) -> torch.device:
    """The device with its index."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


def file_of(device: torch.device) -> CardFile[Verdict]:
    """The verdicts on this card."""
    device = numbered(device)
    if device not in _files:
        _files[device] = CardFile(_card.identity(device), Verdict, "verdicts")
    return _files[device]


def found(unit: Unit, device: torch.device, *, always: bool) -> Verdict | None:
    """The verdict of this process or, unless `always`, of an earlier one."""
    if (device, unit) not in known and not always:
        verdicts = file_of(device).read()
        if str(unit) in verdicts:
            known[device, unit] = verdicts[str(unit)]
    return known.get((device, unit))


def sentence(unit: Unit, device: torch.device) -> str | None:
    """Why the unit is refused, by what this process knows; None where it is not."""
    verdict = known.get((device, unit))
    if verdict is None or verdict["why"] is None:
        return None
    what = "replaying a CUDA graph" if unit.backend == GRAPH else f"the backend {unit.backend!r}"
    gpu = _card.identity(device)["gpu"]
    return (
        f"{what} failed its check on this {gpu} at {unit.precision}: {verdict['why']} ({VARIABLE}=always checks again)"
    )


def report(device: torch.device) -> list[str]:
    """What is known of this card's kernels, in lines; none where the device is no GPU of this machine."""
    if not _card.present(device):
        return []
    if switch() == "0":
        return [f"kernels are not checked on this GPU: {VARIABLE}=0"]
    with lock:
        verdicts, path = file_of(device).read(), file_of(device).path
    if not verdicts:
        return ["kernels were never checked on this GPU with this driver, torch and Triton: the first use does that"]
    refused = [f"refused: {name}: {each['why']}" for name, each in verdicts.items() if each["why"] is not None]
    last = max(each["date"] for each in verdicts.values())
    return [f"{len(verdicts)} kernels checked on this GPU, {len(refused)} refused, last on {last} ({path})", *refused]
