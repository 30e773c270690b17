"""One comparison: every side checked against float64, timed in turn, launched one by one and replayed as a graph."""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.gpu.judge import COMPILED, EAGER, OURS, What, judged
from benchmarks.gpu.session import Session
from benchmarks.gradients import differentiated
from benchmarks.results import GpuRow, measure, significant
from elmo_fast.tuning import clock

COMPILING = 20.0  # seconds that must be left for a side that has to be compiled first
WINDOW = 2.0  # seconds that the repetitions of one comparison take, per way of launching
# Largest relative error (rms) to float64 that a side may have: rivals keep all of their state in 16 bit.
TOLERANCE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}


UNCHECKED = "gradient that is not compared"


class Side(NamedTuple):
    """Who does it: `call` is timed; `result` gives named tensors, to be compared with those of the truth."""

    call: Callable[[], object]
    result: Callable[[], Mapping[str, Tensor]]


def side(
    forward: Callable[[], Tensor], leaves: Mapping[str, Tensor], others: Sequence[Tensor] = (), *, train: bool = True
) -> Side:
    """forward() and, if `train`, the gradients of all leaves; those of `others` need only be finite."""
    call = differentiated(forward, [*leaves.values(), *others], train=train)
    names = [*(f"d {name}" for name in leaves), *(f"{UNCHECKED} {i}" for i in range(len(others)))]

    def result() -> dict[str, Tensor]:
        outputs, gradients = call()
        return {"outputs": outputs.detach(), **dict(zip(names, gradients, strict=train))}

    return Side(call, result)


def beside_torch(
    session: Session, ours: Callable[[], Side], rival: Callable[[Callable[..., Tensor]], Side], function: Any
) -> dict[str, Callable[[], Side]]:
    """Ours, the rival with plain torch's `function`, and with that compiled."""
    return {OURS: ours, EAGER: lambda: rival(function), COMPILED: lambda: rival(session.compiled(function))}


def errors(result: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> float:
    """The largest relative rms error of the tensors that both have; raises ValueError on a NaN or another shape."""
    worst = 0.0
    for name, tensor in result.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds NaN or infinity")
        if name in truth:
            if tensor.shape != truth[name].shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, wanted {tuple(truth[name].shape)}")
            wanted = truth[name].double()
            worst = max(worst, ((tensor.double() - wanted).norm() / wanted.norm().clamp_min(1e-30)).item())
    return worst


def compare(
    session: Session,
    what: What,
    sides: Mapping[str, Callable[[], Side]],
    truth: Callable[[], Mapping[str, Tensor]],
    *,
    tolerance: float | None = None,
) -> dict[str, GpuRow]:
    """Builds, checks and times each side; keeps the rows and returns the better one of each side (by launching).

    A side that raises or is wrong has no row: it is a failure. Without the first one, ours, nothing is timed.
    """
    leading = next(iter(sides))
    if session.late(what.name, 5.0):
        return {}
    right = {name: tensor.double() for name, tensor in truth().items() if not name.startswith(UNCHECKED)}
    ready: dict[str, Side] = {}
    found: dict[str, float] = {}
    for name, build in sides.items():
        if name != leading and session.late(f"{what.name}, {name}", COMPILING if name == COMPILED else 3.0):
            continue
        try:
            side = build()
            found[name] = errors(side.result(), right)
            if found[name] > (tolerance or TOLERANCE[what.precision]):
                raise ValueError(f"wrong: relative error {found[name]:.1e} to float64")
            ready[name] = side
        except Exception as error:  # noqa: BLE001 (whatever a side raises is what is reported of it)
            session.fail(f"{what.name}, {name}", error)
            still_usable(session)
            if name == leading:
                return {}
    del right
    rows = timed(session, what, session.clock.way, {name: side.call for name, side in ready.items()}, found)
    session.record(*rows)
    try:
        for name, side in ready.items():
            peak = clock.peak(side.call)
            for each in rows:
                if each.side == name and peak is not None:
                    each.memory = significant(peak, 3)
        if what.graph and session.clock.cuda:
            replayed = timed(session, what, "graph", captured(session, what, ready), found)
            rows += replayed
            session.record(*replayed)
    finally:
        best = judged(what, rows, session.ceilings())
        session.save()
        for each in rows:
            print(f"  {each.told()}", flush=True)
    if session.clock.cuda and not session.quick and session.left() > 15:
        profiled(session, what, ready[leading])
    gc.collect()  # what the sides and their graphs held
    if session.clock.cuda:
        torch.cuda.empty_cache()
    return best


def still_usable(session: Session) -> None:
    """Raises where the device's context is lost (an access out of bounds): nothing can be measured any more."""
    if session.clock.cuda:
        torch.cuda.synchronize()


def captured(session: Session, what: What, ready: Mapping[str, Side]) -> dict[str, Callable[[], object]]:
    """The sides as graphs; a side that cannot be captured is noted, with the reason, and left out."""
    graphs = {}
    for name, side in ready.items():
        if session.late(f"{what.name}, {name}, graph", 2.0):
            continue
        try:
            graphs[name] = clock.graphed(side.call)
        except Exception as error:  # noqa: BLE001 (as above)
            session.note(f"{what.name}, {name}: not captured", f"{type(error).__name__}: {error}"[:300])
            still_usable(session)
    return graphs


def profiled(session: Session, what: What, side: Side) -> None:
    """Notes where the time of one call goes, kernel by kernel."""
    try:
        session.note(f"kernels of {what.name}", clock.kernels(side.call))
    except Exception as error:  # noqa: BLE001 (a profiler that does not run loses no figure)
        session.note(f"kernels of {what.name}", f"not profiled: {error}"[:300])


def timed(
    session: Session, what: What, way: str, calls: Mapping[str, Callable[[], object]], found: Mapping[str, float]
) -> list[GpuRow]:
    """Times the sides in turn, as many rounds as fit into WINDOW."""
    if not calls:
        return []
    once = sum(session.clock.seconds(call) for call in calls.values())
    rounds = 3 if session.quick else min(40, max(7, int(min(WINDOW, session.left() / 3) / max(once, 1e-6))))
    measured = {name: lambda call=call: what.value(session.clock.seconds(call)) for name, call in calls.items()}
    warmup = 1 if session.quick else 2
    rows = measure(what.name, measured, rounds, unit=what.unit, warmup=warmup, kind=GpuRow, launched=way)
    for each in rows:
        each.ours = each.side == OURS
        each.error, each.error_to = significant(found[each.side], 2), "float64, relative"
    return rows
