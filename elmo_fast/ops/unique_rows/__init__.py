"""unique_rows, ordered_unique_rows, gather_rows: each distinct word of a batch once, and back to the batch."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import register_op
from elmo_fast.ops._checks import check_device, check_dtype, check_same, check_shapes, described
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._table_rows import RowOrder


def unique_rows(ids: Tensor, *, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Return the distinct rows of `ids`, and for every row the index of its distinct row.

        unique[inverse] == ids, and no two rows of `unique` are equal

    The order of `unique` is the backend's: "reference" keeps the order of first occurrence, "triton" puts rows with the
    shortest trailing run of equal ids (the longest words) first. On a GPU the host waits for U; it does not with
    `ordered_unique_rows`.

    Args:
        ids: rows of whole numbers, such as the character ids of words, [N, C] int64|int32, C >= 1, any strides.
        backend: "auto", "triton" or "reference".

    Returns:
        unique: the distinct rows, [U, C], dtype of `ids`; U depends on the values, so that under
            `torch.compile(fullgraph=True)` `torch._dynamo.config.capture_dynamic_output_shape_ops` must be on.
        inverse: row of `unique` equal to each row of `ids`, [N] int64.

    Raises:
        ElmoFastError: wrong shape or dtype, or an unknown backend.
    """
    _check("unique_rows", ids)
    backend = select("unique_rows", backend, ids.device, torch.float32)
    if backend == "triton":  # a shape that depends on values has to wait for the device
        unique, inverse, count, *_ = registered_op("padded_unique_rows", backend)(ids)
        return unique[: int(count)].clone(), inverse
    return _distinct(ids)


def ordered_unique_rows(ids: Tensor, *, backend: str = "auto") -> tuple[Tensor, Tensor, Tensor, RowOrder | None]:
    """Return the results of `unique_rows` in shapes that depend on no value, so that nothing waits for the device.

        unique[inverse] == ids, and unique[count:] == 0

    "triton" sorts rows by a hash and compares neighbours in full, so it never merges different rows. If different rows
    share all 63 bits of their key, one of them may occur in `unique` more than once, which costs only time.

    Args:
        ids, backend: as for `unique_rows`.

    Returns:
        unique: the distinct rows in the backend's order, then rows of zeros, [N, C], dtype of `ids`.
        inverse: row of `unique` equal to each row of `ids`, [N] int64.
        count: number of distinct rows, [] int64, on the device of `ids`.
        order: `inverse` sorted, equal ones in their order, and their positions, [N] int64 both, with which the gradient
            of `gather_rows` need not sort again; None if the backend has not sorted ("reference").

    Raises:
        ElmoFastError: wrong shape or dtype, or an unknown backend.
    """
    _check("ordered_unique_rows", ids)
    backend = select("unique_rows", backend, ids.device, torch.float32)
    if backend == "triton":
        unique, inverse, count, *order = registered_op("padded_unique_rows", backend)(ids)
        return unique, inverse, count, RowOrder(*order)
    if ids.is_meta:
        unique, inverse, count, *_ = _fake_padded(ids)
        return unique, inverse, count, None
    unique, inverse = _distinct(ids)
    padded = torch.cat([unique, unique.new_zeros(len(ids) - len(unique), ids.shape[1])])
    return padded, inverse, torch.full((), len(unique), dtype=torch.int64, device=ids.device), None


def gather_rows(table: Tensor, inverse: Tensor, *, order: RowOrder | None = None, backend: str = "auto") -> Tensor:
    """Return the row of `table` for each index; the gradient of a row is the sum over all indices that name it.

        rows[n] = table[inverse[n]],    d table[u] = sum over n with inverse[n] = u of d rows[n]

    The sum has the same order on every run. Rows that no index names have gradient 0.

    Args:
        table: [U, D] float32|float64, any strides.
        inverse: rows of `table`, [N] int64. On the CPU an index outside of it raises an IndexError; on a GPU,
            where indices are not validated, its row is NaN.
        order: of `inverse`, as `ordered_unique_rows` returns it, by which the gradient is summed without a sort.
        backend: "auto", "triton" or "reference".

    Returns:
        rows, [N, D], dtype of `table`.

    Raises:
        ElmoFastError: wrong shape, dtype or device, indices into a table without rows, or an unknown backend.
    """
    op = "gather_rows"
    check_shapes(op, ("table", table, "U D"))
    check_same(op, "table", [table], floating=True)
    check_shapes(op, ("inverse", inverse, "N"))
    check_dtype(op, "inverse", inverse, torch.int64)
    check_device(op, "table and inverse", table, inverse)
    for name, tensor in () if order is None else order._asdict().items():
        check_shapes(op, (f"order.{name}", tensor, "N"), N=len(inverse))
        check_same(op, f"inverse and order.{name}", [inverse, tensor])
    backend = select("unique_rows", backend, table.device, table.dtype)
    # torch's index_select refuses a table without rows, even without an index.
    if not torch.compiler.is_compiling() and table.shape[0] == 0:
        if len(inverse):
            raise ElmoFastError(f"{op}: inverse must be empty, as table has no rows; got {described(inverse)}")
        return table[:0]
    if backend == "triton":
        return registered_op(op, backend)(table, inverse, *(order or (None, None)), table.shape[0])
    return _gathered(table, inverse)


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Find distinct rows in plain torch and Python: the definition of unique_rows."""
    if ids.is_meta:
        raise ElmoFastError(
            "unique_rows: the number of distinct rows depends on values, which meta tensors do not have; use "
            "ordered_unique_rows"
        )
    if ids.device.type == "cpu" and not torch.compiler.is_compiling():
        # torch.unique(dim=0) sorts rows as tensors; a dictionary of their bytes is many times faster.
        table = np.ascontiguousarray(ids.numpy())
        of_rows: Any = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel().tolist()
        numbers = dict[bytes, int]()
        numbered = [numbers.setdefault(row, len(numbers)) for row in of_rows]
        distinct = np.frombuffer(b"".join(numbers), table.dtype).reshape(-1, table.shape[1])
        return torch.from_numpy(distinct.copy()), torch.tensor(numbered, dtype=torch.int64, device="cpu")
    unique, inverse = torch.unique(ids, dim=0, return_inverse=True)
    # torch sorts the rows; here they keep the order of their first occurrence, and so do sums over them.
    rows = torch.arange(len(ids), device=ids.device)
    order = rows.new_full((len(unique),), len(ids)).scatter_reduce(0, inverse, rows, "amin").argsort()
    return unique[order], order.argsort()[inverse]


def _gathered(table: Tensor, inverse: Tensor) -> Tensor:
    """Gather in plain torch: the definition of gather_rows."""
    # torch's index_select raises IndexError or RuntimeError, depending on its code path.
    if inverse.device.type == "cpu" and inverse.numel() and not torch.compiler.is_compiling():
        low, high = (int(bound) for bound in inverse.aminmax())
        if low < 0 or high >= len(table):
            raise IndexError(f"gather_rows: inverse must lie from 0 to {len(table) - 1}; got {low} to {high}")
    return table.index_select(0, inverse)


def _check(op: str, ids: Tensor) -> None:
    check_shapes(op, ("ids", ids, "N C"))
    check_dtype(op, "ids", ids, torch.int64, torch.int32)
    if ids.shape[1] == 0:
        raise ElmoFastError(f"{op}: ids must have at least one column; got {described(ids)}")


def _fake_padded(ids: Tensor) -> tuple[Tensor, ...]:
    inverse = ids.new_empty(ids.shape[0], dtype=torch.int64)
    return ids.new_empty(ids.shape), inverse, inverse.new_empty(()), *(torch.empty_like(inverse) for _ in range(2))


register_op("padded_unique_rows", lambda a: _fake_padded(a.ids))
register_op(
    "gather_rows",
    lambda a: a.table.new_empty(a.inverse.shape[0], a.table.shape[1]),
    shapes=lambda a: {"table": (a.entries, a.grad.shape[1])},
)
register("unique_rows", "triton", kernels="elmo_fast.ops.unique_rows.kernels")
