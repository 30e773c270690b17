"""Which algorithm of the LSTM serves which batch best: every backend that is there for the GPU, over batch sizes."""

import torch

from benchmarks.gpu.judge import OURS
from benchmarks.gpu.sections import lstm
from benchmarks.gpu.session import Session
from elmo_fast.ops import _dispatch

BATCHES = (16, 128, 1, 32, 64, 8, 256)


def run(session: Session) -> None:
    """Forward of one layer, both directions: what is chosen by itself, and each backend by its name."""
    (precision,) = session.precisions("float16")
    known = gpu_backends(session, precision)
    if len(known) < 2:
        session.skip(f"only one algorithm serves the LSTM here ({', '.join(known) or 'plain torch'})")
        return
    fastest = {}
    for batch in (1, 2) if session.quick else BATCHES:
        best = lstm.forward(session, batch, precision, backends=known)
        named = {name.removeprefix(f"{OURS} by "): each.median for name, each in best.items() if name != OURS}
        if named:
            fastest[str(batch)] = min(named, key=lambda name: named[name])
            session.note(f"fastest backend by batch, {precision}", fastest)


def gpu_backends(session: Session, precision: str) -> list[str]:
    """The LSTM's backends that are made for a GPU and can run here."""
    return [
        name
        for name, module in _dispatch._REGISTRY["projected_lstm"].items()
        if name not in ("native", "reference") and module.unsupported(session.device, torch.float32, precision) is None
    ]
