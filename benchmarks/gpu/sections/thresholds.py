"""Which algorithm of the LSTM serves which batch best: every one that is registered for the GPU, over batch sizes."""

import functools

import torch

from benchmarks.gpu import roofline
from benchmarks.gpu.compare import compare
from benchmarks.gpu.judge import OURS, What
from benchmarks.gpu.sections.lstm import CELLS, DIRECTIONS, SIZE, STEPS, Problem
from benchmarks.gpu.session import Session
from elmo_fast.ops import _dispatch

BATCHES = (1, 4, 8, 16, 32, 64, 96, 128, 192, 256)


def run(session: Session) -> None:
    """Forward of one layer, both directions, by backend; the rows say which won."""
    (precision,) = session.precisions("float16")
    known = [
        name
        for name, module in _dispatch._REGISTRY["projected_lstm"].items()
        if name in ("cuda", "triton") and module.unsupported(session.device, torch.float32, precision) is None
    ]
    if len(known) < 2:
        session.skip(f"only one algorithm serves the LSTM here ({', '.join(known) or 'plain torch'})")
        return
    fastest = {}
    for batch in (1, 2) if session.quick else BATCHES:
        problem = Problem(session, batch, train=False)
        steps = problem.steps
        work = roofline.lstm_layer(batch, steps, SIZE, CELLS, SIZE, DIRECTIONS)
        what = What(
            f"LSTM layer, forward, {batch} x {STEPS}, {precision}, per direction and step",
            precision,
            "us",
            DIRECTIONS * steps,
            work,
        )
        sides = {
            OURS if i == 0 else name: functools.partial(problem.ours, precision, name) for i, name in enumerate(known)
        }
        best = compare(session, what, sides, problem.truth)
        if best:
            winner = min(best, key=lambda name: best[name].median)
            fastest[str(batch)] = known[0] if winner == OURS else winner
    session.note("elmo_fast is the backend", known[0])
    session.note("fastest backend by batch", fastest)
