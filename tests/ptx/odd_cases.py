"""More calls of the ops, in which masks are needed that those in cases.py can do without: sizes that fill no tile,
steps that no row has, options. What they move stands in no table, and of their kernels only masks are taken away."""

import torch

from elmo_fast.ops import (
    char_cnn,
    full_softmax,
    highway,
    negative_sampling,
    projected_lstm,
    sampled_softmax,
    scalar_mix,
)
from tests.ops import char_cnn_cases, highway_cases, lstm_cases
from tests.ptx import cases
from tests.ptx.cases import BACKEND, backward, named, softmax_case


def run_highway_odd():
    made = highway_cases.case(37, 37, 2, 24).to(torch.float32)
    backward(highway(*made, precision="float16", **BACKEND))


def run_highway_unprojected():
    backward(highway(*highway_cases.case(9, 21, 1, 0).to(torch.float32), precision="float32", **BACKEND))


def run_char_cnn_wide():
    """Filters of more numbers than are summed at once, and no whole number of times as many."""
    made = char_cnn_cases.case("mixed", 9, 20, 16, ((2, 3), (18, 5))).to(torch.float32)
    backward(char_cnn(*made, precision="float16", **BACKEND))


def lstm(batch=3, size=21, cells=27, *, lengths=None, precision="float16", masked=False, width=9, **options):
    made = lstm_cases.make(
        batch, 2, width, size, cells, directions=1, lengths=lengths, projected=size != cells
    )  # fmt: skip
    masks = [torch.randn(batch, size)] if masked else None
    out, state = projected_lstm(
        *lstm_cases.cast(made, torch.float32), precision=precision, reverse=(True,), recurrent_masks=masks, **options,
        **BACKEND,
    )  # fmt: skip
    backward(out, *state)


def run_projected_lstm_ended():
    """A step that no row has."""
    lstm(lengths=torch.ones(3, dtype=torch.int64))


def run_projected_lstm_residual():
    lstm(masked=True, residual=True, width=21, lengths=torch.tensor([2, 1, 0]))


def run_projected_lstm_unprojected():
    lstm(size=27, masked=True)


def run_projected_lstm_bfloat16():
    """Whose inputs' product is a kernel of ours."""
    lstm(precision="bfloat16")


def run_persistent_ended():
    """A step that no row has."""
    cases.run_persistent(longest=2)


def run_persistent_masked():
    cases.run_persistent(masked=True, save=True)


def run_scalar_mix_deep():
    """More layers than a launch takes, more mixes than one of backward, dropout."""
    layers = [torch.randn(3, 5, 70, requires_grad=True) for _ in range(6)]
    weights = torch.randn(3, 6, requires_grad=True), torch.randn(3, requires_grad=True)
    backward(scalar_mix(layers, *weights, dropout=0.3, seed=3, **BACKEND))


def run_sampled_softmax_odd():
    """Each word is drawn."""
    backward(sampled_softmax(*softmax_case(37, 33, 71), torch.randperm(71), 90, precision="float16", **BACKEND))


def run_full_softmax_odd():
    """In several chunks of words."""
    backward(full_softmax(*softmax_case(37, 33, 271), precision="float16", chunk_bytes=1, **BACKEND))


def run_negative_sampling_noise():
    made, drawn = softmax_case(37, 33, 71), torch.randint(0, 71, (61,))
    noise = torch.randn(71)
    backward(negative_sampling(*made, drawn, negatives=5, log_noise=noise, precision="float16", **BACKEND))


CASES = named(globals())
"""name -> call"""
