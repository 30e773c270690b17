"""The projected LSTM in C++: packed weights, both directions in one parallel region, only active rows touched."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._native import describe
from elmo_fast.ops._weights import run_stamped
from elmo_fast.ops.projected_lstm.op import ProjectedLSTMArguments


def run(a: ProjectedLSTMArguments) -> tuple[Tensor, Tensor, Tensor]:
    lengths, (batch, time, _) = a.lengths, a.inputs[0].shape
    if lengths is None:
        lengths = torch.full((batch,), time, dtype=torch.int64)
    masks = a.recurrent_masks or []
    if torch.compiler.is_exporting() and not masks:  # AOTInductor hands an empty list on as None; ones change no bit
        masks = [x.new_ones(x.shape[0], w.weight_hh.shape[1]) for x, w in zip(a.inputs, a.weights, strict=True)]
    weight_ih, weight_hh, _, weight_hr = zip(*a.weights, strict=True)
    packed = (*weight_ih, *weight_hh, *weight_hr)
    outputs, h, c, *_ = run_stamped(torch.ops.elmo_fast.projected_lstm, packed, *a.of_op(lengths, masks))
    return outputs, h, c


def _fake(a: Any) -> tuple[Tensor, ...]:
    (batch, time, _), directions, new = a.inputs[0].shape, len(a.inputs), a.inputs[0].new_empty
    cells, size = a.weight_hh[0].shape[0] // 4, a.weight_hh[0].shape[1]
    blocks, saved = (cells + 15) // 16, batch * time if a.save else 0
    return (
        new(directions, batch, time, size), new(directions, batch, size), new(directions, batch, cells),
        new(directions, blocks, saved, 64), new(directions, blocks, saved, 16), new(directions, saved, size),
    )  # fmt: skip


def _shapes(a: Any) -> dict[str, Any]:
    directions, batch = len(a.inputs), a.inputs[0].shape[0]
    gates, size = a.weight_hh[0].shape
    bias = [(gates,) for _ in a.weight_hh]
    return {"bias": bias, "h0": (directions, batch, size), "c0": (directions, batch, gates // 4)}


OF_WEIGHTS = {"need_weights": ["weight_ih", "weight_hh", "bias", "weight_hr"]}
describe("projected_lstm", _fake, Backward(covers=OF_WEIGHTS, shapes=_shapes))
