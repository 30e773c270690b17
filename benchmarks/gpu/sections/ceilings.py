"""The two ceilings of this card: bandwidth of a large copy, rate of a large matrix product per precision, random data.

Every floor of the other sections is counted work over these.
"""

from collections.abc import Callable

import torch

from benchmarks.gpu.session import Session
from benchmarks.results import GpuRow, measure

PRECISIONS = ("bfloat16", "float16", "tf32", "float32")


def run(session: Session) -> None:
    """Rows "GB/s" (read and written) and "TFLOP/s"; the medians, in bytes/s and FLOP/s, as note "ceilings"."""
    side, elements = (128, 2**16) if session.quick else (8192, 2**30)
    rounds = 3 if session.quick else 12
    found = {"copy": copied(session, elements, rounds)}
    for precision in PRECISIONS:
        dtype = torch.float32 if precision == "tf32" else getattr(torch, precision)
        a, b = (torch.randn(side, side, device=session.device).to(dtype) for _ in range(2))
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        found[precision] = keep(
            session, f"matrix product, {precision}", "TFLOP/s", 2.0 * side**3, lambda a=a, b=b: a @ b, rounds
        )
    torch.backends.cuda.matmul.allow_tf32 = False
    session.note("ceilings", found)
    session.note("sizes", f"copy of {elements * 4 / 2**30:g} GiB of float32, products of {side} x {side} x {side}")


def copied(session: Session, elements: int, rounds: int) -> float:
    """Bytes per second, read and written, of a copy of so many float32."""
    source = torch.empty(elements, device=session.device).uniform_(-1, 1)
    target = torch.empty_like(source)
    return keep(session, "copy", "GB/s", 2 * source.nbytes, lambda: target.copy_(source), rounds)


def keep(session: Session, name: str, unit: str, amount: float, call: Callable[[], object], rounds: int) -> float:
    """A row of the rate at which `call` does `amount`; returns its median per second."""
    scale = {"GB/s": 1e9, "TFLOP/s": 1e12}[unit]
    sides = {"torch": lambda: amount / session.clock.seconds(call) / scale}
    (new,) = measure(name, sides, rounds, unit=unit, warmup=3, kind=GpuRow, launched=session.clock.way)
    session.record(new)
    print(f"  {name}: {new.median:g} {unit}", flush=True)
    return new.median * scale
