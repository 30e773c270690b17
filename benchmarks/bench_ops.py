"""Every op on one thread, forward, and forward + backward: native, and the reference in plain torch."""

import functools

import pytest
import torch

from benchmarks.op_calls import TOY, OpCalls, differentiated
from elmo_fast.ops import explain

BOTH = ("char_cnn", "highway", "projected_lstm", "sampled_softmax", "negative_sampling")
FLOAT32 = ("hierarchical_softmax", "full_softmax", "glove", "adagrad")
NO_GRADIENT = ("adagrad", "glove")
CASES = [(op, precision) for op in BOTH for precision in ("float32", "bfloat16")]
CASES += [(op, "float32") for op in FLOAT32]
PASSES = [(*case, train) for case in CASES for train in (False, True) if not (train and case[0] in NO_GRADIENT)]


@functools.lru_cache(2)  # the two sides of one comparison
def call_of(quick, op, precision, train, backend):
    torch.manual_seed(0)
    inputs, forward = getattr(TOY if quick else OpCalls(), op)({"precision": precision, "backend": backend})
    for each in inputs:
        each.requires_grad_(train)
    return differentiated(forward, inputs, train=train)


@pytest.mark.turns(7)
@pytest.mark.parametrize(("op", "precision", "train"), PASSES)
@pytest.mark.parametrize("side", ["native", "reference"])
def bench_op(timed, op, precision, train, side):
    if side == "native" and "native" in (refusals := explain(op, "cpu", torch.float32, precision).refusals):
        pytest.skip(f"{op}, {precision}, native: {refusals['native']}")
    call = call_of(timed.quick, op, precision, train, side)
    timed.note("shapes", "the original architecture's; see benchmarks/op_calls.py")
    timed(f"{op}, {precision}, {'forward + backward' if train else 'forward'}", call, against="reference")
