"""Checks kernels once per GPU, in one process at a time, shows progress on stderr, and keeps the verdicts."""

import contextlib
import datetime
import sys
import time
import warnings
from collections.abc import Iterator

import torch

from elmo_fast.lock import only_one
from elmo_fast.ops import _card, _check_processes, _verdicts
from elmo_fast.ops._card_files import CardFile
from elmo_fast.ops._check import Unit
from elmo_fast.ops._verdicts import Verdict, file_of

_told: set[str] = set()


def check_all(units: list[Unit], device: torch.device, *, always: bool) -> None:
    """Checks the units that have no verdict, one process at a time, and keeps the verdicts."""
    file = file_of(device)
    with _alone(file):
        if not always:
            _verdicts.known.update({(device, unit): found for unit in units if (found := file.read().get(str(unit)))})
        new = [unit for unit in units if (device, unit) not in _verdicts.known]
        if not new:
            return
        verdicts = _checked(new, device)
        _verdicts.known.update({(device, unit): verdicts.get(unit) for unit in new})
        file.add({str(unit): verdict for unit, verdict in verdicts.items()})


@contextlib.contextmanager
def _alone(file: CardFile[Verdict]) -> Iterator[None]:
    """Lets one process at a time into the block, if the folder can hold a lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file.path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_one(file.path.with_suffix(".lock"), _say_waiting))
        yield


def _checked(units: list[Unit], device: torch.device) -> dict[Unit, Verdict]:
    """The verdicts of the check, with its progress on stderr; a warning names units that could not be checked."""
    gpu, start, done = _card.identity(device)["gpu"], time.monotonic(), 0
    _say(f"checking {len(units)} GPU kernels on this {gpu}, once for its driver, torch, Triton and their sources")

    def answered(unit: Unit) -> None:
        nonlocal done
        done += 1
        _say(f"checked {done} of {len(units)}: {unit}", passing=True)

    found = _check_processes.answers(units, device, answered)
    seconds, date = time.monotonic() - start, datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    for why in dict.fromkeys(answer.unable for answer in found.values() if answer.unable is not None):
        tell(f"some GPU kernels run unchecked on this {gpu}: {why}")
    refused = [unit for unit in units if found[unit].why is not None]
    _say(f"checked in {seconds:.1f} s: {'; '.join(map(str, refused)) + ' refused' if refused else 'none is refused'}")
    each = round(seconds / len(units), 2)
    return {
        unit: Verdict(why=answer.why, seconds=each, date=date)
        for unit, answer in found.items()
        if answer.unable is None
    }


def tell(sentence: str) -> None:
    """A warning, once."""
    if sentence not in _told:
        _told.add(sentence)
        warnings.warn(sentence, stacklevel=2)


def _say_waiting() -> None:
    _say("another process is checking the GPU kernels; waiting for its verdict")


def _say(line: str, *, passing: bool = False) -> None:
    """A line on stderr; a passing one is shown on a terminal only, and overwritten by the next."""
    if sys.stderr is None or (passing and not sys.stderr.isatty()):
        return
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}elmo_fast: {line}", end="" if passing else "\n", file=sys.stderr, flush=True)
