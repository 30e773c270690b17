"""One layer of the original size, both directions, 32 rows of 20 steps: elmo_fast and torch's LSTMs, equal weights.

torch's int8, `quantize_dynamic`, refuses a projection: so both run without one, with as many cells.
elmo_fast runs with both clips, which torch's lacks. In bfloat16 it rounds the operands and keeps cell state and sums in
float32, while torch's computes all of it in bfloat16. In int8 it has a scale for each row of a weight and of the
activations, quantize_dynamic one for a whole weight and one for all rows of the activations.
"""

import copy
import functools

import pytest
import torch
from torch import nn

from benchmarks.machine import instruction_set
from benchmarks.op_calls import differentiated
from elmo_fast.ops import LSTMWeights, PackedWeights, projected_lstm

TRUTH = "nn.LSTM, float32"
TORCH = [f"{name}, {precision}" for precision in ("float32", "bfloat16") for name in ("nn.LSTM", "two nn.LSTM")]
ELMO_FAST = [f"elmo_fast, {precision}" for precision in ("float32", "bfloat16", "int8")]
VARIANTS = {"forward": [*TORCH, *ELMO_FAST], "forward + backward": [*TORCH, *ELMO_FAST[:2]]}
VARIANTS["forward, no projection"] = ["nn.LSTM, float32", "nn.LSTM, bfloat16", "quantize_dynamic, int8", *ELMO_FAST]


@functools.lru_cache(1)
def layer(variant, quick):
    """The LSTM whose weights all sides of a variant have, and its input."""
    torch.manual_seed(0)
    inputs, hidden, cells = (64, 32, 256) if quick else (512, 512, 4096)
    projection = 0 if variant.endswith("no projection") else hidden
    lstm = nn.LSTM(inputs, cells, batch_first=True, bidirectional=True, proj_size=projection)
    return lstm, torch.randn(32, 20, inputs)


def weights_of(lstm, suffix, train):
    """Return one direction's parameters as the op takes them: one bias, the sum of torch's two."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
    w_ih, w_hh, b_ih, b_hh, *w_hr = (getattr(lstm, name + suffix) for name in names if hasattr(lstm, name + suffix))
    return LSTMWeights(*(t.detach().clone().requires_grad_(train) for t in (w_ih, w_hh, b_ih + b_hh, *w_hr)))


def one_way(lstm):
    """Return the two directions as a module each, the second to be fed in reverse."""
    modules = []
    for suffix in ("", "_reverse"):
        single = nn.LSTM(lstm.input_size, lstm.hidden_size, batch_first=True, proj_size=lstm.proj_size)
        single.load_state_dict({name: getattr(lstm, name + suffix) for name in single.state_dict()})
        modules.append(single)
    return modules


@functools.lru_cache(16)
def calls(variant, quick, side):
    """(the call to time, the outputs of both directions) of one side."""
    lstm, x = layer(variant, quick)
    name, precision = side.rsplit(", ", 1)
    train = variant == "forward + backward"
    if name == "elmo_fast":
        leaf = x.clone().requires_grad_(train)
        weights = [weights_of(lstm, suffix, train) for suffix in ("", "_reverse")]
        leaves = [leaf, *(tensor for each in weights for tensor in each if tensor is not None)]
        how = {"precision": precision, "packed": PackedWeights(), "cell_clip": 3.0, "projection_clip": 3.0}
        op = lambda: projected_lstm([leaf, leaf], weights, **how)[0]  # noqa: E731
        return differentiated(op, leaves, train=train), lambda: torch.cat([*op().detach()], dim=-1)
    if name == "quantize_dynamic":
        whole = nn.ModuleDict({"lstm": copy.deepcopy(lstm)})  # it replaces submodules alone
        modules = [torch.ao.quantization.quantize_dynamic(whole, {nn.LSTM}, dtype=torch.qint8)["lstm"]]
        precision = "float32"
    else:
        modules = one_way(lstm) if "two" in name else [copy.deepcopy(lstm)]  # `to` changes a module itself
        modules = [each.to(getattr(torch, precision)) for each in modules]
    leaf = x.to(getattr(torch, precision), copy=True).requires_grad_(train)
    forward = lambda: tuple(m(leaf.flip(1) if i else leaf)[0] for i, m in enumerate(modules))  # noqa: E731

    @torch.no_grad()
    def outputs():
        first, *second = forward()
        return torch.cat([first, *(each.flip(1) for each in second)], dim=-1)

    leaves = [leaf, *(parameter for each in modules for parameter in each.parameters())]
    return differentiated(forward, leaves, train=train), outputs


@pytest.mark.turns(7)
@pytest.mark.parametrize(("variant", "side"), [(v, side) for v, sides in VARIANTS.items() for side in sides])
def bench_layer(timed, variant, side):
    precision = side.rsplit(", ", 1)[1]
    if instruction_set() == "avx2" and not side.startswith("elmo_fast") and precision == "bfloat16":
        pytest.skip("torch's bfloat16: with AVX2 alone several times slower than its float32")
    call, outputs = calls(variant, timed.quick, side)
    if side != TRUTH:
        difference = outputs().double() - calls(variant, timed.quick, TRUTH)[1]().double()
        timed.error(difference.abs().max().item(), TRUTH)
    timed.note("clips", "3 and 3 in elmo_fast, none in torch")
    int8 = "quantize_dynamic, int8" if variant.endswith("no projection") else TRUTH
    timed(f"one layer, {variant}", call, against=int8 if precision == "int8" else f"nn.LSTM, {precision}")
