"""projected_lstm in plain torch: the definition."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops._precision import linear, operand


class LSTMWeights(NamedTuple):
    """Parameters of one direction; gates in torch.nn.LSTM's order i, f, g, o; the forget bias is part of `bias`."""

    weight_ih: Tensor
    """input weights, [4H, I]"""
    weight_hh: Tensor
    """recurrent weights, [4H, D]"""
    bias: Tensor
    """[4H]"""
    weight_hr: Tensor | None = None
    """projection, [D, H]; None: no projection and no projection clip, and D = H"""


def projected_lstm(
    inputs: Sequence[Tensor],
    weights: Sequence[LSTMWeights],
    lengths: Tensor | None,
    state: tuple[Tensor, Tensor] | None,
    masks: Sequence[Tensor],
    reverse: Sequence[bool],
    cell_clip: float,
    projection_clip: float,
    residual: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run elmo_fast.ops.projected_lstm, one direction after the other, one step after the other."""
    first, directions = inputs[0], len(inputs)
    batch, time, _ = first.shape
    size, cells = weights[0].weight_hh.shape[1], weights[0].weight_hh.shape[0] // 4
    if lengths is None:
        lengths = torch.full((batch,), time, dtype=torch.int64, device=first.device)
    h0, c0 = state or (first.new_zeros(directions, batch, size), first.new_zeros(directions, batch, cells))
    outputs, hs, cs = [], [], []
    valid = torch.arange(time, device=first.device)[None, :, None] < lengths[:, None, None]

    def scan(x: Tensor, w: LSTMWeights, h: Tensor, c: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        gates_x = linear(x, operand(w.weight_ih, precision), precision) + w.bias
        w_hh = operand(w.weight_hh, precision)
        w_hr = None if w.weight_hr is None else operand(w.weight_hr, precision)
        steps = []
        for t in range(time):
            # NaN stays where it is: rows that have ended are not multiplied, nor is a missing state. The gates of
            # such rows are 0, since the gradient 0 times the derivative at NaN is NaN.
            active = (t < lengths)[:, None]
            known = active if state is not None or t else torch.zeros_like(active)
            recurrent = linear(h.where(active, 0.0), w_hh, precision).where(known, 0.0)
            i, f, g, o = (gates_x[:, t] + recurrent).where(active, 0.0).chunk(4, dim=-1)
            c_new = _clip(torch.sigmoid(f) * c.where(active, 0.0) + torch.sigmoid(i) * torch.tanh(g), cell_clip)
            h_new = torch.sigmoid(o) * torch.tanh(c_new)
            if w_hr is not None:
                h_new = _clip(linear(h_new, w_hr, precision), projection_clip)
            if mask is not None:
                h_new = h_new * mask.where(active, 0.0)
            h, c = torch.where(active, h_new, h), torch.where(active, c_new, c)
            steps.append(h)
        return torch.stack(steps, dim=1) if steps else x.new_zeros(batch, 0, size), h, c

    for r, (x, w) in enumerate(zip(inputs, weights, strict=True)):
        x = x.where(valid, 0.0)
        source = reversed_within(x, lengths) if reverse[r] else x
        y, h, c = scan(source, w, h0[r], c0[r], masks[r] if masks else None)
        y = reversed_within(y, lengths) if reverse[r] else y
        outputs.append(torch.where(valid, y + x if residual else y, 0.0))
        hs.append(h)
        cs.append(c)
    return torch.stack(outputs), torch.stack(hs), torch.stack(cs)


def reversed_within(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first lengths[b] positions of each row b of x [B, T, *]; the others stay in place."""
    position = torch.arange(x.shape[1], device=x.device)[None, :]
    index = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
    return x.gather(1, index[:, :, None].expand_as(x))


def _clip(x: Tensor, bound: float) -> Tensor:
    return x if bound == math.inf else x.clamp(-bound, bound)
