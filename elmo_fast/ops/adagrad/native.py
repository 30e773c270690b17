"""AdaGrad on the CPU: torch's own fused update, and rows gathered, stepped and put back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.ops._table_rows import coalesced
from elmo_fast.ops.adagrad import reference
from elmo_fast.ops.adagrad.op import AdagradArguments, AdagradRowsArguments, RowOrder

RUN = 256  # numbers whose squares are summed in the tensors' dtype; the sums of runs are summed in float64


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """torch's fused update serves the CPU only: on a GPU it would need a separate pass for the clip."""
    if device.type != "cpu":
        return f"torch's fused AdaGrad serves tensors on the CPU, and these are on {device.type}"
    return None


def run(a: AdagradArguments) -> None:
    gradients = a.gradients
    if a.scale is not None:
        if not a.scale.isfinite():
            return
        gradients = torch._foreach_mul(list(gradients), a.scale.to(gradients[0].dtype))
    fused = []
    for weight, accumulator, gradient in zip(a.parameters, a.accumulators, gradients, strict=True):
        if weight.is_contiguous() and accumulator.is_contiguous():
            fused.append((weight, accumulator, gradient.contiguous()))
        else:
            reference.run(AdagradArguments([weight], [accumulator], [gradient], a.learning_rate, None))
    if fused:
        _fused_update(fused, a.learning_rate)


def _fused_update(tensors: list[tuple[Tensor, Tensor, Tensor]], learning_rate: float) -> None:
    """torch's kernel goes through memory, whatever the strides, and leaves the version counters as they are.

    It does not use the number of the step, as lr_decay is 0.
    """
    parameters, accumulators, gradients = (list(column) for column in zip(*tensors, strict=True))
    steps = [torch.ones((), dtype=torch.float32, device="cpu") for _ in parameters]
    torch._fused_adagrad_(
        parameters, gradients, accumulators, steps,
        lr=learning_rate, lr_decay=0.0, weight_decay=0.0, eps=0.0, maximize=False,
    )  # fmt: skip
    torch.autograd.graph.increment_version([*parameters, *accumulators])


def _merged(ids: Tensor, rows: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Distinct ids and the sum of each one's rows; nothing is copied where they are distinct and sorted already."""
    inside = (ids >= 0) & (ids < num_words)
    if not inside.all():
        ids, rows = ids[inside], rows[inside]
    shape = (num_words, *rows.shape[1:])
    gradient = coalesced(
        torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, device=rows.device, check_invariants=False)
    )
    return gradient.indices()[0], gradient.values()


def run_rows(a: AdagradRowsArguments) -> None:
    if a.scale is not None and not a.scale.isfinite():
        return
    ids, rows = _merged(a.ids, a.rows, a.table.shape[0])
    if a.scale is not None:
        rows = rows * a.scale.to(rows.dtype)
    sums = a.accumulator.index_select(0, ids).addcmul_(rows, rows)
    a.accumulator.index_copy_(0, ids, sums)
    a.table.index_add_(0, ids, torch.div(rows, sums.sqrt_(), out=sums), alpha=-a.learning_rate)


def square_norm(tensors: Sequence[Tensor]) -> Tensor:
    """torch's norm of a whole tensor is one chain of sums, up to 1 % off over 8 million numbers; runs cost no more."""
    parts = [part for tensor in tensors for part in _runs(tensor.reshape(-1)) if part.numel()]
    norms = [torch.linalg.vector_norm(part, dim=-1).reshape(-1).double() for part in parts]
    return torch.cat([*norms, tensors[0].new_zeros(1, dtype=torch.float64)]).square().sum().to(tensors[0].dtype)


def _runs(flat: Tensor) -> tuple[Tensor, Tensor]:
    whole = len(flat) // RUN * RUN
    return flat[:whole].view(-1, RUN), flat[whole:]


def merged_square_norm(ids: Tensor, rows: Tensor, num_words: int, order: RowOrder | None) -> Tensor:
    return square_norm([_merged(ids, rows, num_words)[1]])
