"""gather_runs in plain torch: the definition. It computes the index of every number, then gathers from each part."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.devices import sent


def gather_runs(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int, out: Tensor) -> None:
    if out.device.type == "cpu":
        _check_inside(values, first, lengths, upward)
    indices = _indices(first, lengths, upward, out.numel(), out.device)
    if len(values) == 1:
        torch.index_select(values[0], 0, indices, out=out)
        return
    begin = 0
    for part in values:
        here = (indices >= begin) & (indices < begin + len(part))
        out[here] = part[indices[here] - begin]
        begin += len(part)


def _check_inside(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int) -> None:
    bounds = torch.tensor([0, *(len(part) for part in values)], device=first.device).cumsum(0)
    last = torch.cat([first[:upward] + lengths[:upward] - 1, first[upward:] - lengths[upward:] + 1])
    part, end = (torch.searchsorted(bounds, place, right=True) for place in (first, last))
    raise_for_runs((lengths > 0) & ((part != end) | (first < 0) | (first >= bounds[-1])), first, lengths)


def _indices(first: Tensor, lengths: Tensor, upward: int, total: int, device: torch.device) -> Tensor:
    """Return the index of every number of the runs, [total] int64; the host waits for no device."""
    # An index is its run's shift plus the number's own index in out, or minus it for downward runs.
    turn, at = int(lengths[:upward].sum()), lengths.cumsum(0) - lengths
    shift = torch.cat([first[:upward] - at[:upward], first[upward:] + at[upward:]])
    shifts, repeats = sent(torch.stack([shift, lengths]), device)
    indices = shifts.repeat_interleave(repeats, output_size=total)
    numbers = torch.arange(total, device=device)
    indices[:turn] += numbers[:turn]
    indices[turn:] -= numbers[turn:]
    return indices


def raise_for_runs(bad: Tensor, first: Tensor, lengths: Tensor) -> None:
    """Raise IndexError about the first run for which `bad` is set, if any."""
    if bad.any():
        run = int(bad.nonzero()[0])
        raise IndexError(
            f"gather_runs: run {run} begins at {int(first[run])}, has {int(lengths[run])} numbers and leaves the part "
            "of values in which it begins"
        )
