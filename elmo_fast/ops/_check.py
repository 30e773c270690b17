"""Holds a GPU's kernels to the definition, on the card that is there."""

import warnings
from typing import Any, NamedTuple

import torch

from elmo_fast.errors import PerformanceWarning
from elmo_fast.ops import _capture
from elmo_fast.ops._cases import Case, Draw, How, results
from elmo_fast.ops._registry import cases_of
from elmo_fast.ops._tolerances import why_worse

GRAPH = "cuda_graph"
MARK = "elmo_fast check: "  # before what a process answers
CPU = torch.device("cpu")


class Unit(NamedTuple):
    """What gets one verdict. backend: of the op; or `GRAPH`, the replay of what it captures."""

    op: str
    backend: str
    precision: str

    def __str__(self) -> str:
        return f"{self.op}, {self.backend}, {self.precision}"


class Answer(NamedTuple):
    """why: the kernel is refused; unable: what prevented the check, which says nothing of the kernel; lost: the
    device's context is, so that the process must end."""

    why: str | None = None
    unable: str | None = None
    lost: bool = False


def check(unit: Unit, device: torch.device) -> Answer:
    """Runs all cases of the unit on the device, forward and backward, and holds them to plain torch in float64."""
    for number, case in enumerate(cases_of(unit.op).cases(Draw())):
        answer = _checked(unit, case, number, device)
        if answer != Answer():
            return answer
    return Answer()


def _checked(unit: Unit, case: Case, number: int, device: torch.device) -> Answer:
    how = {"backend": unit.backend, "precision": unit.precision}
    truth, torchs = definition(case, unit.precision)
    try:
        ours = results(case, how, device)
    except Exception as error:  # noqa: BLE001 (whatever a kernel raises is why it is refused)
        return answer_of(error, device)
    worse = (why_worse(name, ours[name], torchs[name], truth[name], unit.precision) for name in truth)
    why = next(filter(None, worse), None)
    return Answer(why and f"case {number}: {why}")


def definition(case: Case, precision: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The truth, and what plain torch makes of it at that precision: both on the CPU."""
    return (
        results(case, {"backend": "reference", "precision": "float32"}, CPU, torch.float64),
        results(case, {"backend": "reference", "precision": precision}, CPU),
    )


def answer_of(error: Exception, device: torch.device) -> Answer:
    """A refusal that says what was raised, except where memory ran out, for which no kernel is to blame."""
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
    """Calls the op with new inputs until it replays a graph, and holds what that gives to the definition."""
    module = cases_of(unit.op)
    how: How = {"backend": "triton", "precision": unit.precision}
    case = next(case for case in module.cases(Draw()) if not case.differentiates)
    given = {name: tensor.to(device) for name, tensor in case.tensors.items()}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", PerformanceWarning)  # that nothing can be captured
            for seed in range(3):
                x = Draw(seed).normal(*given["x"].shape)
                ours = case.call({**given, "x": x.to(device)}, how)
            ours = {name: tensor.cpu() for name, tensor in ours.items()}
    except Exception as error:  # noqa: BLE001 (as above)
        return answer_of(error, device)
    if not module.graphs():
        return Answer("nothing was captured")
    truth, torchs = definition(case._replace(tensors={**case.tensors, "x": x}), unit.precision)
    worse = (why_worse(name, ours[name], torchs[name], truth[name], unit.precision) for name in truth)
    return Answer(next(filter(None, worse), None))
