"""gather_runs: the sentences of a stored text in a different order, some of them backwards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast._runtime.devices import to_device


def gather_runs(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int) -> Tensor:
    """Concatenate runs of stored numbers; the first `upward` runs are read upwards, the others downwards.

        out[at_r + i] = v[first_r + i] for r < upward, else v[first_r - i];    at_r = lengths_0 + ... + lengths_(r-1)

    Args:
        values: v as consecutive parts, each [n] int32, on one device. No run leaves its part.
        first: index in v at which each run begins, [R] int64, on the host.
        lengths: number of values of each run, [R] int64, on the host.
        upward: how many runs, the first ones, are read upwards.

    Returns:
        out, [sum(lengths)] int32, on that device. On a GPU, with values in one part, the host does not wait.

    Raises:
        IndexError: a run leaves its part (on a GPU, where runs are not validated, undefined).
    """
    device = values[0].device
    if device.type == "cpu":
        _check_inside(values, first, lengths, upward)
    indices = _indices(first, lengths, upward, int(lengths.sum()), device)
    if len(values) == 1:
        return values[0].index_select(0, indices)
    out, begin = values[0].new_empty(len(indices)), 0
    for part in values:
        here = (indices >= begin) & (indices < begin + len(part))
        out[here] = part[indices[here] - begin]
        begin += len(part)
    return out


def _check_inside(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int) -> None:
    """Raise IndexError about the first run that leaves its part."""
    bounds = torch.tensor([0, *(len(part) for part in values)], device=first.device).cumsum(0)
    bad = (lengths < 0) | (lengths > bounds[-1])  # before they are added to anything: sums may overflow
    if not bad.any():
        last = torch.cat([first[:upward] + lengths[:upward] - 1, first[upward:] - lengths[upward:] + 1])
        part, end = (torch.searchsorted(bounds, place.contiguous(), right=True) for place in (first, last))
        bad = (lengths > 0) & ((part != end) | (first < 0) | (first >= bounds[-1]))
    if bad.any():
        run = int(bad.nonzero()[0])
        raise IndexError(
            f"gather_runs: run {run} begins at {int(first[run])}, has {int(lengths[run])} numbers and leaves the part "
            "of values in which it begins"
        )


def _indices(first: Tensor, lengths: Tensor, upward: int, total: int, device: torch.device) -> Tensor:
    """Return the index of every number of the runs, [total] int64; the host waits for no device."""
    # An index is its run's shift plus the number's own index in out, or minus it for downward runs.
    turn, at = int(lengths[:upward].sum()), lengths.cumsum(0) - lengths
    shift = torch.cat([first[:upward] - at[:upward], first[upward:] + at[upward:]])
    shifts, repeats = to_device(torch.stack([shift, lengths]), device)
    indices = shifts.repeat_interleave(repeats, output_size=total)
    numbers = torch.arange(total, device=device)
    indices[:turn] += numbers[:turn]
    indices[turn:] -= numbers[turn:]
    return indices
