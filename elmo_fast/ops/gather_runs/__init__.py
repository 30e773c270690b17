"""gather_runs: the sentences of a stored text in a different order, some of them backwards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import describe
from elmo_fast.ops._checks import check_dtype, check_same, check_shapes, described
from elmo_fast.ops._dispatch import kernel, register, select
from elmo_fast.ops.gather_runs import reference
from elmo_fast.ops.gather_runs.reference import raise_for_runs


def gather_runs(
    values: Sequence[Tensor],
    first: Tensor,
    lengths: Tensor,
    upward: int,
    *,
    out: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Concatenate runs of stored numbers; the first `upward` runs are read upwards, the others downwards.

        out[at_r + i] = v[first_r + i] for r < upward, else v[first_r - i];    at_r = lengths_0 + ... + lengths_(r-1)

    Args:
        values: v as consecutive parts, each [n] int32, on one device. No run leaves its part.
        first: index in v at which each run begins, [R] int64, on the host.
        lengths: number of values of each run, [R] int64, on the host.
        upward: how many runs, the first ones, are read upwards.
        out: tensor to write, [sum(lengths)] int32, contiguous, on the device of `values`; None: a new tensor.
        backend: "auto", "native" or "reference".

    Returns:
        out. On a GPU, with values in one part, the host does not wait.

    Raises:
        ElmoFastError: wrong shape, dtype or device, or an unknown backend.
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
    first, lengths = first.contiguous(), lengths.contiguous()
    # Checked here because the next line adds the lengths.
    raise_for_runs((lengths < 0) | (lengths > sum(map(len, values))), first, lengths)
    total = int(lengths.sum())
    out = values[0].new_empty(total) if out is None else out
    check_same(op, "values and out", [values[0], out])
    if out.shape != (total,) or not out.is_contiguous():
        raise ElmoFastError(f"{op}: out must be contiguous, of shape [sum(lengths)={total}]; got {described(out)}")
    if not out.is_meta:
        backend = select(op, backend, out.device, torch.float32)
        run = reference.gather_runs if backend == "reference" else kernel(op, backend)
        run([part.contiguous() for part in values], first, lengths, upward, out)
    return out


describe("gather_runs", lambda a: None)
register("gather_runs", "native", no_gpu_kernel_needed=True)
