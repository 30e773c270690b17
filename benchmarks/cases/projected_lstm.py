"""One layer of the original size, both directions, 32 rows of 20 steps: ours and torch's LSTMs in turn, equal weights.

With the projection, torch's side is the faster of one bidirectional nn.LSTM(proj_size=512) and two of one direction
each. torch's int8, `quantize_dynamic`, refuses a projection: without one, ours runs beside it with as many cells.
Ours runs with both clips, which torch's lacks. In bfloat16, ours rounds the operands and keeps cell state and sums in
float32, while torch's computes all of it in bfloat16. In int8, ours has a scale for each row of a weight and of the
activations, quantize_dynamic one for a whole weight and one for all rows of the activations.
"""

import copy
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Settings
from benchmarks.gradients import differentiated
from benchmarks.machine import instruction_set
from benchmarks.results import Report, Row, faster, measure, significant
from benchmarks.timing import milliseconds
from elmo_fast.ops import LSTMWeights, projected_lstm

# Instruction set -> how many times as fast as torch's at the same precision.
GOALS = {
    "amx": {
        "forward": {"float32": 1.6, "bfloat16": 2.5},
        "forward + backward": {"float32": 1.5, "bfloat16": 2.0},
    }
}
PRECISIONS = ("float32", "bfloat16", "int8")
Outputs = Callable[[], Tensor]


def run(settings: Settings) -> Report:
    """Rows "ms", forward alone (no autograd) and forward + backward (input and weights); the error of the outputs."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")  # torch's, of its own path
    inputs, hidden, cells = (64, 32, 256) if settings.quick else (512, 512, 4096)
    shape = {"rows": 32, "steps": 20, "inputs": inputs, "projection": hidden, "cells": cells}
    report = Report(notes={"shape": shape, "clips": "3 and 3 in ours, none in torch's"})
    peers = PRECISIONS[:2]
    if instruction_set() == "avx2":
        peers = PRECISIONS[:1]
        report.skipped.append(
            "torch's bfloat16: with AVX2 alone several times slower than its float32, too long to wait for"
        )
    x, rounds = torch.randn(32, 20, inputs), 3 if settings.quick else 7
    lstm = nn.LSTM(inputs, cells, batch_first=True, bidirectional=True, proj_size=hidden)
    for variant, train in (("forward", False), ("forward + backward", True)):
        sides = ours(lstm, x, train, PRECISIONS[: 2 if train else 3])
        for precision in peers:
            modules = {"nn.LSTM, bidirectional": [lstm], "two nn.LSTM": one_way(lstm)}
            for name, lstms in modules.items():
                sides[f"{name}, {precision}"] = torchs(lstms, x, train, precision)
        report.rows += compared(variant, sides, rounds, GOALS.get(instruction_set(), {}).get(variant, {}))
    lstm = nn.LSTM(inputs, cells, batch_first=True, bidirectional=True)
    sides = ours(lstm, x, False, PRECISIONS)
    sides |= {f"nn.LSTM, {precision}": torchs([lstm], x, False, precision) for precision in peers}
    sides["quantize_dynamic, int8"] = torchs([quantized(lstm)], x, False, "float32")
    report.notes["int8 of torch"] = f"torch.ao.quantization.quantize_dynamic of torch {torch.__version__}, deprecated"
    report.rows += compared("forward, no projection", sides, rounds, {})
    return report


def compared(variant: str, sides: Mapping[str, Any], rounds: int, goals: Mapping[str, float]) -> list[Row]:
    """A row for each side; ours beside the fastest of torch's at its precision, or of all where that has none."""
    outputs = {name: forward() for name, (forward, _) in sides.items()}
    rows = measure(variant, {name: milliseconds(call) for name, (_, call) in sides.items()}, rounds, unit="ms")
    truth = next(name for name in outputs if name.startswith("nn.LSTM") and name.endswith("float32"))
    peers = [each for each in rows if not each.side.startswith("elmo_fast")]
    for each in rows:
        if each.side != truth:
            difference = (outputs[each.side].double() - outputs[truth].double()).abs().max().item()
            each.error, each.error_to = significant(difference, 2), truth
        precision = each.side.rpartition(", ")[2]
        if each not in peers:
            alike = [peer for peer in peers if peer.side.endswith(precision)] or peers
            faster(each, min(alike, key=lambda peer: peer.median), goals.get(precision))
    return rows


def ours(lstm: nn.LSTM, x: Tensor, train: bool, precisions: Sequence[str]) -> dict[str, tuple[Outputs, Any]]:
    """The op at each precision with its own copy of the weights of `lstm`: its outputs, and the call to time."""
    sides: dict[str, tuple[Outputs, Any]] = {}
    for precision in precisions:
        leaf = x.clone().requires_grad_(train)
        weights = [weights_of(copy.deepcopy(lstm), suffix, train) for suffix in ("", "_reverse")]
        op = functools.partial(projected_lstm, [leaf, leaf], weights, precision=precision)
        leaves = [leaf, *(tensor for each in weights for tensor in each if tensor is not None)]
        timed = differentiated(lambda op=op: op()[0], leaves, train=train)  # type: ignore[misc]
        sides[f"elmo_fast, {precision}"] = (lambda op=op: torch.cat([*op()[0].detach()], dim=-1)), timed
    return sides


def weights_of(lstm: nn.LSTM, suffix: str, train: bool) -> LSTMWeights:
    """The parameters of one direction of `lstm` as the op takes them: one bias, the sum of torch's two."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
    w_ih, w_hh, b_ih, b_hh, w_hr = (getattr(lstm, name + suffix, None) for name in names)
    tensors = (w_ih, w_hh, b_ih + b_hh, w_hr)  # type: ignore[operator]
    return LSTMWeights(*(None if t is None else t.detach().requires_grad_(train) for t in tensors))  # type: ignore[arg-type]


def one_way(lstm: nn.LSTM) -> list[nn.LSTM]:
    """The two directions of `lstm` as a module each, the second to be fed in reverse."""
    found = []
    for suffix in ("", "_reverse"):
        single = nn.LSTM(lstm.input_size, lstm.hidden_size, batch_first=True, proj_size=lstm.proj_size)
        single.load_state_dict({name: getattr(lstm, name + suffix) for name in single.state_dict()})
        found.append(single)
    return found


def torchs(lstms: Sequence[nn.Module], x: Tensor, train: bool, precision: str) -> tuple[Outputs, Any]:
    """One bidirectional LSTM, or two of one direction, in `precision`: their outputs, and the call to time."""
    dtype = getattr(torch, precision)
    lstms = [copy.deepcopy(each).to(dtype) for each in lstms]
    leaf = x.to(dtype, copy=True).requires_grad_(train)
    forward = lambda: tuple(lstm(leaf.flip(1) if i else leaf)[0] for i, lstm in enumerate(lstms))  # noqa: E731

    @torch.no_grad()
    def outputs() -> Tensor:
        first, *second = forward()
        return torch.cat([first, *(each.flip(1) for each in second)], dim=-1)

    leaves = [leaf, *(parameter for lstm in lstms for parameter in lstm.parameters())]
    return outputs, differentiated(forward, leaves, train=train)


def quantized(lstm: nn.LSTM) -> nn.Module:
    """torch's int8 of `lstm`, whose deprecation a reader of the table is told of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = nn.ModuleDict({"lstm": lstm})  # quantize_dynamic replaces submodules alone
        return torch.ao.quantization.quantize_dynamic(whole, {nn.LSTM}, dtype=torch.qint8)["lstm"]
