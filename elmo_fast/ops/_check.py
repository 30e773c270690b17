"""Compares a GPU's kernels with the reference, on this machine's GPU."""

import importlib
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _capture
from elmo_fast.ops._cases import Case, Draw, Replayed, results
from elmo_fast.ops._registry import REPLAYS, cases_of
from elmo_fast.ops._tolerances import why_worse

GRAPH = "cuda_graph"
MARK = "elmo_fast check: "  # marks the lines of a process that are answers
CPU = torch.device("cpu")


class Unit(NamedTuple):
    """What gets one verdict. backend: of the op; or `GRAPH`: the replay of what `op` names (`_registry.REPLAYS`)."""

    op: str
    backend: str
    precision: str

    def __str__(self) -> str:
        return f"{self.op}, {self.backend}, {self.precision}"


class Answer(NamedTuple):
    """why: the reason to refuse the kernel; unable: the reason why it could not be checked; lost: whether the device's
    context is lost, so that the process must end."""

    why: str | None = None
    unable: str | None = None
    lost: bool = False


def check(unit: Unit, device: torch.device) -> Answer:
    """Runs all cases of the unit on the device, forward and backward, and compares them with plain torch in float64."""
    for number, case in enumerate(cases_for(unit, device)):
        answer = _checked(unit, case, number, device)
        if answer != Answer():
            return answer
    return Answer()


def cases_for(unit: Unit, device: torch.device) -> list[Case]:
    """The op's cases, and those for the larger tiles of its Triton kernels, as small cases take small tiles."""
    module = cases_of(unit.op)
    cases: list[Case] = module.cases(Draw())
    if unit.backend == "triton" and hasattr(module, "cases_of_tiles"):
        cases += module.cases_of_tiles(Draw(), unit.precision, device)
    return cases


def _checked(unit: Unit, case: Case, number: int, device: torch.device) -> Answer:
    how = {"backend": unit.backend, "precision": unit.precision}
    truth, torchs = definition(case, unit.precision)
    try:
        ours = results(case, how, device)
    except Exception as error:  # noqa: BLE001 (whatever a kernel raises is why it is refused)
        return answer_of(error, device)
    worse = (why_worse(name, ours[name], torchs[name], truth[name], unit.precision) for name in truth)
    why = next(filter(None, worse), None)
    chosen = "".join(f", {name}: {value}" for name, value in case.choices.items())
    return Answer(why and f"case {number}{chosen}: {why}")


def definition(case: Case, precision: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results in float64, and those of plain torch at that precision, both on the CPU."""
    return (
        results(case, {"backend": "reference", "precision": "float32"}, CPU, torch.float64),
        results(case, {"backend": "reference", "precision": precision}, CPU),
    )


def answer_of(error: Exception, device: torch.device) -> Answer:
    """A refusal with the error; if memory ran out, no kernel is to blame, and nothing is refused."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    said = said if len(said) <= 300 else f"{said[:297]}..."
    if _capture.out_of_memory(error):
        return Answer(unable=said)
    try:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except RuntimeError:
        return Answer(said, lost=True)
    return Answer(said)


def check_replay(unit: Unit, device: torch.device) -> Answer:
    """Replays the graphs that the unit names; their bits must be those of the same launches."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "running without a CUDA graph", PerformanceWarning)
            found: Replayed = importlib.import_module(REPLAYS[unit.op]).replayed(unit.precision, device)
        same = {name: _same_bits(found.ours[name], found.theirs[name]) for name in found.theirs}
    except Exception as error:  # noqa: BLE001 (as above)
        return answer_of(error, device)
    if not found.graphs:
        return Answer("nothing was captured")
    different = [name for name in same if not same[name]]
    named = ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
    return Answer(f"{named}: a replay gives other bits than a call launch by launch" if different else None)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    one, other = (tensor.cpu().contiguous().view(torch.uint8) for tensor in (one, other))
    return torch.equal(one, other)
