"""projected_lstm in plain torch: the definition."""

import torch
from torch import Tensor

from elmo_fast.ops._precision import linear, operand
from elmo_fast.ops.projected_lstm.op import LSTMWeights, ProjectedLSTMArguments


def run(a: ProjectedLSTMArguments) -> tuple[Tensor, Tensor, Tensor]:
    """Run elmo_fast.ops.projected_lstm, one direction after the other, one step after the other."""
    first, directions, lengths = a.inputs[0], len(a.inputs), a.lengths
    batch, time, _ = first.shape
    size, cells = a.weights[0].weight_hh.shape[1], a.weights[0].weight_hh.shape[0] // 4
    if lengths is None:
        lengths = torch.full((batch,), time, dtype=torch.int64, device=first.device)
    state = a.state or (first.new_zeros(directions, batch, size), first.new_zeros(directions, batch, cells))
    outputs, hs, cs = [], [], []
    valid = torch.arange(time, device=first.device)[None, :, None] < lengths[:, None, None]
    for r, (x, w) in enumerate(zip(a.inputs, a.weights, strict=True)):
        x = x.where(valid, 0.0)
        source = reversed_within(x, lengths) if a.reverse[r] else x
        mask = None if a.recurrent_masks is None else a.recurrent_masks[r]
        y, h, c = _scan(a, source, w, lengths, (state[0][r], state[1][r]), mask)
        y = reversed_within(y, lengths) if a.reverse[r] else y
        outputs.append(torch.where(valid, y + x if a.residual else y, 0.0))
        hs.append(h)
        cs.append(c)
    return torch.stack(outputs), torch.stack(hs), torch.stack(cs)


def reversed_within(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first lengths[b] positions of each row b of x [B, T, *]; the others stay in place."""
    position = torch.arange(x.shape[1], device=x.device)[None, :]
    index = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
    return x.gather(1, index[:, :, None].expand_as(x))


def _scan(
    a: ProjectedLSTMArguments, x: Tensor, w: LSTMWeights, lengths: Tensor, start: tuple[Tensor, Tensor],
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    precision, carried = a.precision, a.state is not None
    gates_x = linear(x, operand(w.weight_ih, precision), precision) + w.bias
    w_hh = operand(w.weight_hh, precision)
    w_hr = None if w.weight_hr is None else operand(w.weight_hr, precision)
    steps, (h, c) = [], start
    for t in range(x.shape[1]):
        # NaN stays where it is: rows that have ended are not multiplied, nor is a missing state. The gates of
        # such rows are 0, since the gradient 0 times the derivative at NaN is NaN.
        active = (t < lengths)[:, None]
        known = active if carried or t else torch.zeros_like(active)
        recurrent = linear(h.where(active, 0.0), w_hh, precision).where(known, 0.0)
        i, f, g, o = (gates_x[:, t] + recurrent).where(active, 0.0).chunk(4, dim=-1)
        c_new = _clip(torch.sigmoid(f) * c.where(active, 0.0) + torch.sigmoid(i) * torch.tanh(g), a.cell_clip)
        h_new = torch.sigmoid(o) * torch.tanh(c_new)
        if w_hr is not None:
            h_new = _clip(linear(h_new, w_hr, precision), a.projection_clip)
        if mask is not None:
            h_new = h_new * mask.where(active, 0.0)
        h, c = torch.where(active, h_new, h), torch.where(active, c_new, c)
        steps.append(h)
    return torch.stack(steps, dim=1) if steps else x.new_zeros(x.shape[0], 0, h.shape[1]), h, c


def _clip(x: Tensor, bound: float | None) -> Tensor:
    return x if bound is None else x.clamp(-bound, bound)
