"""Every op, native and reference in turn, on one thread: forward, and forward + backward."""

from collections.abc import Callable

import torch

from benchmarks.cases import Settings
from benchmarks.gradients import differentiated
from benchmarks.op_calls import TOY, Call, OpCalls
from benchmarks.results import Report, faster, measure
from benchmarks.timing import milliseconds
from elmo_fast.ops import explain

BOTH, FLOAT32 = ("float32", "bfloat16"), ("float32",)
PRECISIONS = {
    "char_cnn": BOTH,
    "highway": BOTH,
    "projected_lstm": BOTH,
    "scalar_mix": FLOAT32,
    "sampled_softmax": BOTH,
    "negative_sampling": BOTH,
    "hierarchical_softmax": FLOAT32,
    "full_softmax": FLOAT32,
    "alias_sample": FLOAT32,
    "adagrad": FLOAT32,
    "cooccurrences": FLOAT32,
    "glove": FLOAT32,
    "vector_text": FLOAT32,
}


def run(settings: Settings) -> Report:
    """Rows "ms" per op, precision and backend."""
    torch.set_num_threads(1)
    calls = TOY if settings.quick else OpCalls()
    report = Report(notes={"shapes": "the original architecture's; see benchmarks/op_calls.py"})
    for op, precision in ((name, precision) for name in PRECISIONS for precision in PRECISIONS[name]):
        rounds = 3 if settings.quick else 5 if op == "projected_lstm" else 12  # its reference takes seconds
        backends, refusals = ["native", "reference"], explain(op, "cpu", torch.float32, precision).refusals
        if "native" in refusals:
            backends.remove("native")
            report.skipped.append(f"{op}, {precision}, native: {refusals['native']}")
        for train in (False, True):
            sides = {name: timed(getattr(calls, op), precision, name, train) for name in backends}
            if None in sides.values():
                continue
            name = f"{op}, {precision}, {'forward + backward' if train else 'forward'}"
            rows = measure(name, sides, rounds, unit="ms")
            if len(rows) == 2:
                faster(*rows)
            report.rows += rows
    return report


def timed(make: Callable[..., Call], precision: str, backend: str, train: bool) -> Callable[[], float] | None:
    """Milliseconds of a call; None where the gradients are asked for and there are none."""
    torch.manual_seed(0)
    inputs, forward = make({"precision": precision, "backend": backend})
    if train and not inputs:
        return None
    for each in inputs:
        each.requires_grad_(train)
    return milliseconds(differentiated(forward, inputs, train=train))
