"""gather_runs: the sentences of a stored text in a different order, some of them backwards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast._runtime.devices import to_device
from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_same, check_shapes, described


def gather_runs(
    values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int, *, out: Tensor | None = None
) -> Tensor:
    """Concatenate runs of stored numbers; the first `upward` runs are read upwards, the others downwards.

        out[at_r + i] = v[first_r + i] for r < upward, else v[first_r - i];    at_r = lengths_0 + ... + lengths_(r-1)

    Args:
        values: v as consecutive parts, each [n] int32, on one device. No run leaves its part.
        first: index in v at which each run begins, [R] int64, on the host.
        lengths: number of values of each run, [R] int64, on the host.
        upward: how many runs, the first ones, are read upwards.
        out: tensor to write, [sum(lengths)] int32, contiguous, on the device of `values`; None: a new tensor.

    Returns:
        out. On a GPU, with values in one part, the host does not wait.

    Raises:
        ElmoFastError: wrong shape, dtype or device.
        IndexError: a run leaves its part (on a GPU, where runs are not validated, undefined).
    """
    op = "gather_runs"
    for i, part in enumerate(values):
        check_shapes(op, (f"values[{i}]", part, "n"))
        check_dtype(op, f"values[{i}]", part, torch.int32)
    if not values:
        raise ElmoFastError(f"{op}: values must have at least one part; got none")
    check_same(op, "the parts of values", values)
    for name, tensor in (("first", first), ("lengths", lengths)):
        check_shapes(op, (name, tensor, "R"), R=len(first))
        check_dtype(op, name, tensor, torch.int64)
        if tensor.device.type != "cpu":
            raise ElmoFastError(f"{op}: {name} must be on the host; got {described(tensor)}")
    if not 0 <= upward <= len(first):
        raise ElmoFastError(f"{op}: upward must be from 0 to R = {len(first)}; got {upward}")
    # Checked here because the next line adds the lengths.
    _raise_for_runs((lengths < 0) | (lengths > sum(map(len, values))), first, lengths)
    total = int(lengths.sum())
    out = values[0].new_empty(total) if out is None else out
    check_same(op, "values and out", [values[0], out])
    if out.shape != (total,) or not out.is_contiguous():
        raise ElmoFastError(f"{op}: out must be contiguous, of shape [sum(lengths)={total}]; got {described(out)}")
    if out.is_meta:
        return out
    if out.device.type == "cpu":
        _check_inside(values, first, lengths, upward)
    indices = _indices(first, lengths, upward, total, out.device)
    if len(values) == 1:
        return torch.index_select(values[0], 0, indices, out=out)
    begin = 0
    for part in values:
        here = (indices >= begin) & (indices < begin + len(part))
        out[here] = part[indices[here] - begin]
        begin += len(part)
    return out


def _check_inside(values: Sequence[Tensor], first: Tensor, lengths: Tensor, upward: int) -> None:
    bounds = torch.tensor([0, *(len(part) for part in values)], device=first.device).cumsum(0)
    last = torch.cat([first[:upward] + lengths[:upward] - 1, first[upward:] - lengths[upward:] + 1])
    part, end = (torch.searchsorted(bounds, place.contiguous(), right=True) for place in (first, last))
    _raise_for_runs((lengths > 0) & ((part != end) | (first < 0) | (first >= bounds[-1])), first, lengths)


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


def _raise_for_runs(bad: Tensor, first: Tensor, lengths: Tensor) -> None:
    """Raise IndexError about the first run for which `bad` is set, if any."""
    if bad.any():
        run = int(bad.nonzero()[0])
        raise IndexError(
            f"gather_runs: run {run} begins at {int(first[run])}, has {int(lengths[run])} numbers and leaves the part "
            "of values in which it begins"
        )
