"""adagrad: the update of dense tensors and of a table's rows, and the global norm and clip that go before it."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._autograd import register_op
from elmo_fast.ops._checks import check_device, check_dtype, check_same, check_shapes, checked, described
from elmo_fast.ops._dispatch import register, registered_op, select
from elmo_fast.ops._table_rows import RowOrder, coalesced, row_order

_CACHED = 1 << 17  # numbers


@torch.no_grad()
def adagrad_(
    parameters: Sequence[Tensor],
    accumulators: Sequence[Tensor],
    gradients: Sequence[Tensor],
    learning_rate: float | Tensor,
    scale: Tensor | None = None,
    *,
    backend: str = "auto",
) -> None:
    """Apply TensorFlow's AdaGrad to many tensors, in place.

        g = scale · gradient
        a += g²
        w -= learning_rate · g / √a            (no ε: a starts above zero)

    A scale that is not a finite number (`clip_scale` of such a norm) leaves everything unchanged, whatever the
    gradients hold. On a GPU nothing waits for the device.

    Args:
        parameters: w, any shapes, one floating dtype and device; contiguous for "triton"
        accumulators: a, like parameters; contiguous for "triton"
        gradients: like parameters, any strides; not changed
        learning_rate: step size; a number, or [] float32 or the parameters' dtype on their device, so that a captured
            CUDA graph can read a different one at each replay
        scale: factor of all gradients, [] float32 or the parameters' dtype, on their device; None for 1
        backend: "auto", "native", "triton" or "reference"

    Raises:
        ElmoFastError: lists of different lengths, tensors of different shapes, dtypes or devices.

    Source: Duchi et al. 2011; tf.train.AdagradOptimizer.
    """
    op = "adagrad_"
    if not len(parameters) == len(accumulators) == len(gradients):
        raise ElmoFastError(
            f"{op}: parameters, accumulators and gradients must have the same length; "
            f"got {len(parameters)}, {len(accumulators)} and {len(gradients)}"
        )
    if not parameters:
        return
    check_same(op, "parameters, accumulators and gradients", [*parameters, *accumulators, *gradients], floating=True)
    for name, tensors in (("accumulators", accumulators), ("gradients", gradients)):
        for weight, tensor in zip(parameters, tensors, strict=True):
            if tensor.shape != weight.shape:
                raise ElmoFastError(
                    f"{op}: {name} must be shaped like parameters, {described(weight)}; got {described(tensor)}"
                )
    _check_numbers(op, parameters[0], scale=scale, learning_rate=learning_rate)
    backend = select("adagrad", backend, parameters[0].device, parameters[0].dtype)
    if backend != "triton":
        update = _fused_on_cpu if backend == "native" else _dense_reference
        checked(op, update)(parameters, accumulators, gradients, learning_rate, scale)
        return
    for weight, accumulator in zip(parameters, accumulators, strict=True):
        _check_contiguous(op, parameters=weight, accumulators=accumulator)
    rate = _rate(backend, learning_rate, parameters[0])
    registered_op(op, backend)(list(parameters), list(accumulators), list(gradients), rate, scale)


@torch.no_grad()
def adagrad_rows_(
    table: Tensor,
    accumulator: Tensor,
    ids: Tensor,
    rows: Tensor,
    learning_rate: float | Tensor,
    scale: Tensor | None = None,
    *,
    order: RowOrder | None = None,
    backend: str = "auto",
) -> None:
    """Apply `adagrad_` to the rows of a table that have a gradient, and sum rows of one id before squaring them.

        g = scale · sum of the rows_j with ids_j = id, for each distinct id
        accumulator_id += g²
        table_id -= learning_rate · g / √accumulator_id

    The result equals the dense update restricted to these rows, at a cost that does not depend on V. Sums have a fixed
    order, so that the same arguments give bitwise equal results. Ids outside 0..V-1 (padding) are left out.

    Args:
        table: [V, D], or [V] for a bias; contiguous for "triton"
        accumulator: a, like table
        ids: [n] int64|int32, in any order, repeated or not
        rows: their gradients, [n, D] or [n], dtype of the table; not changed
        learning_rate, scale: as for `adagrad_`
        order: `row_order(ids, V)`, if it has been computed already
        backend: "auto", "native", "triton" or "reference"

    Raises:
        ElmoFastError: shapes, dtypes or devices that do not fit.

    Source: Duchi et al. 2011; bilm-tf, bilm/training.py (_deduplicate_indexed_slices).
    """
    op = "adagrad_rows_"
    if table.dim() == 0 or accumulator.shape != table.shape:
        raise ElmoFastError(
            f"{op}: table must be [V, D] or [V], and accumulator shaped like it; "
            f"got {described(table)} and {described(accumulator)}"
        )
    check_same(op, "table, accumulator and rows", [table, accumulator, rows], floating=True)
    check_dtype(op, "ids", ids, torch.int64, torch.int32)
    check_shapes(op, ("ids", ids, "n"))
    if tuple(rows.shape) != (expected := (len(ids), *table.shape[1:])):
        raise ElmoFastError(f"{op}: rows must have shape {expected}, one row per id; got {described(rows)}")
    check_device(op, "ids and rows", ids, rows)
    for name, tensor in () if order is None else order._asdict().items():
        check_dtype(op, f"order.{name}", tensor, torch.int64, torch.int32)
        if tensor.shape != ids.shape or tensor.device != ids.device:
            raise ElmoFastError(
                f"{op}: order.{name} must be shaped like ids, {described(ids)}; got {described(tensor)}"
            )
    _check_numbers(op, table, scale=scale, learning_rate=learning_rate)
    backend = select("adagrad", backend, table.device, table.dtype)
    if backend == "triton":
        _check_contiguous(op, table=table, accumulator=accumulator)
    if backend == "reference" or not (table.is_contiguous() and accumulator.is_contiguous()):
        checked(op, _rows_reference)(table, accumulator, ids, rows, learning_rate, scale, order)
        return
    if backend == "native":
        ids, rows = _merged(ids, rows, table.shape[0])
        sorted_ids: Sequence[Tensor | None] = (ids, None)
    else:
        sorted_ids = order or row_order(ids, table.shape[0])
    registered_op(op, backend)(table, accumulator, *sorted_ids, rows, _rate(backend, learning_rate, table), scale)


@torch.no_grad()
def square_norm(tensors: Sequence[Tensor], *, backend: str = "auto") -> Tensor:
    """Compute the sum of squares of all elements of all tensors, [], in the tensors' dtype, on their device.

    Sums have a fixed order, so that the same tensors give bitwise equal results; nothing waits for the device.

    Args:
        tensors: at least one, of one floating dtype and device, any shapes and strides
        backend: "auto", "native", "triton" or "reference"
    """
    backend = select("adagrad", backend, tensors[0].device, tensors[0].dtype)
    return (registered_op("square_norm", backend) if backend == "triton" else _norm_reference)(list(tensors))


@torch.no_grad()
def merged_square_norm(
    ids: Tensor, rows: Tensor, num_words: int, *, order: RowOrder | None = None, backend: str = "auto"
) -> Tensor:
    """Compute `square_norm` of a table's sparse gradient, in which rows of one id are summed before squaring.

    Args:
        ids: [n] int64|int32; those outside 0..V-1 are left out, as `adagrad_rows_` leaves them out
        rows: [n, D] or [n]
        num_words: V
        order: `row_order(ids, V)`, if it has been computed already
        backend: "auto", "native", "triton" or "reference"

    Returns:
        [], dtype of rows
    """
    backend = select("adagrad", backend, rows.device, rows.dtype)
    if backend == "native":
        return _norm_reference([_merged(ids, rows, num_words)[1]])
    order = order or row_order(ids, num_words)
    if backend == "reference":
        return _norm_reference([_merged_reference(order, rows, num_words)[1]])
    return registered_op("merged_square_norm", backend)(*order, rows, num_words)


def clip_scale(norm: Tensor, max_norm: float) -> Tensor:
    """Compute max_norm / max(norm, max_norm), or NaN if the norm is not finite: then `adagrad_` changes nothing.

    norm: [], any device; max_norm: above 0. Returns [], dtype of the norm. Raises ElmoFastError unless max_norm > 0.
    """
    if not max_norm > 0:
        raise ElmoFastError(f"clip_scale: max_norm must be above 0; got {max_norm}")
    return max_norm / norm.clamp(min=max_norm) + (norm - norm)  # adds 0 or NaN, in fewer launches than isfinite


def _fused_on_cpu(
    parameters: Sequence[Tensor],
    accumulators: Sequence[Tensor],
    gradients: Sequence[Tensor],
    learning_rate: float | Tensor,
    scale: Tensor | None,
) -> None:
    """Update by torch's fused kernel, which reads and writes each number once."""
    if scale is not None:
        if not math.isfinite(scale):
            return
        scale = None if float(scale) == 1 else scale  # most steps: nothing was clipped
    first_step, rate = [torch.ones((), device="cpu")], float(learning_rate)
    for weight, accumulator, gradient in zip(parameters, accumulators, gradients, strict=True):
        if not (weight.is_contiguous() and accumulator.is_contiguous()):  # the kernel goes through memory
            _dense_reference([weight], [accumulator], [gradient], learning_rate, scale)
            continue
        parts, sums_of_parts = weight.view(-1).split(_CACHED), accumulator.view(-1).split(_CACHED)
        slopes = gradient.contiguous().view(-1).split(_CACHED)
        for part, sums, slope in zip(parts, sums_of_parts, slopes, strict=True):  # scaled numbers stay in the cache
            torch._fused_adagrad_(
                [part], [slope if scale is None else slope * scale], [sums], first_step, lr=rate,
                lr_decay=0.0, weight_decay=0.0, eps=0.0, maximize=False,
            )  # fmt: skip
    torch.autograd.graph.increment_version([t for t in (*parameters, *accumulators) if not t.is_inference()])


def _dense_reference(
    parameters: Sequence[Tensor],
    accumulators: Sequence[Tensor],
    gradients: Sequence[Tensor],
    learning_rate: float | Tensor,
    scale: Tensor | None,
) -> None:
    """Apply adagrad_ in plain torch: the definition. It does not wait for the device either."""
    for weight, accumulator, gradient in zip(parameters, accumulators, gradients, strict=True):
        scaled = gradient if scale is None else gradient * scale.to(gradient.dtype)
        sums = accumulator + scaled.square()
        moved = weight - learning_rate * scaled / sums.sqrt()
        # A scale that is not finite leaves everything unchanged.
        weight.copy_(moved if scale is None else torch.where(scale.isfinite(), moved, weight))
        accumulator.copy_(sums if scale is None else torch.where(scale.isfinite(), sums, accumulator))


def _merged_reference(order: RowOrder, rows: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Return ids [n] int64 and sums [n, ...]: each distinct id with the sum of its rows, then ids -1 with zeros.

    Ids outside the table become -1 with zeros too. The shapes do not depend on the values.
    """
    ids, positions = order
    heads = torch.ones_like(ids, dtype=torch.bool)
    heads[1:] = ids[1:] != ids[:-1]
    segment = heads.cumsum(0) - 1
    sums = torch.zeros_like(rows).index_add_(0, segment, rows.index_select(0, positions))
    words = torch.full_like(segment, -1).index_copy_(0, segment, ids.long())
    inside = (words >= 0) & (words < num_words)
    mask = inside.view(-1, *[1] * (rows.dim() - 1))
    return torch.where(inside, words, -1), torch.where(mask, sums, 0)


def _rows_reference(
    table: Tensor,
    accumulator: Tensor,
    ids: Tensor,
    rows: Tensor,
    learning_rate: float | Tensor,
    scale: Tensor | None,
    order: RowOrder | None,
) -> None:
    """Apply adagrad_rows_ in plain torch: the definition."""
    if table.shape[0] == 0:
        return
    words, sums = _merged_reference(order or row_order(ids, table.shape[0]), rows, table.shape[0])
    inside, index = (words >= 0).view(-1, *[1] * (rows.dim() - 1)), words.clamp_min(0)
    keep = inside if scale is None else inside & scale.isfinite()
    scaled = sums if scale is None else sums * scale.to(sums.dtype)
    accumulator.index_add_(0, index, torch.where(keep, scaled.square(), 0))
    step = learning_rate * scaled / accumulator.index_select(0, index).sqrt()
    table.index_add_(0, index, torch.where(keep, -step, 0))


def _norms(values: Tensor) -> Tensor:
    """Compute the norm of each 512 numbers: torch adds the squares of a row one after the other, on one thread."""
    whole = values.numel() // 512 * 512
    rows, rest = values[:whole].view(-1, 512), values[whole:].view(1, -1)
    return torch.cat([torch.linalg.vector_norm(rows, dim=1), torch.linalg.vector_norm(rest, dim=1)])


def _norm_reference(tensors: Sequence[Tensor]) -> Tensor:
    """Compute square_norm in plain torch: the definition."""
    norms = torch.cat([_norms(tensor.reshape(-1)) for tensor in tensors])
    return _norms(norms.double()).square().sum().to(norms.dtype)


def _check_numbers(op: str, like: Tensor, **numbers: Tensor | float | None) -> None:
    for name, number in numbers.items():
        if isinstance(number, Tensor):
            check_dtype(op, name, number, torch.float32, like.dtype)
            if number.dim() or number.device != like.device:
                raise ElmoFastError(f"{op}: {name} must be one number, [], on {like.device}; got {described(number)}")


def _check_contiguous(op: str, **tensors: Tensor) -> None:
    """Raise ElmoFastError if Triton's kernels, which must not fall back, cannot write these tensors in place."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ElmoFastError(
                f"{op}: {name} must be contiguous, because the Triton kernels write in place; got "
                f'{described(tensor)} with strides {tensor.stride()}; make it contiguous or use backend="reference"'
            )


def _rate(backend: str, learning_rate: float | Tensor, like: Tensor) -> Tensor:
    """Return the learning rate as a tensor: captured and eager steps of a GPU run the same compiled kernels."""
    if isinstance(learning_rate, Tensor):
        return learning_rate
    dtype = torch.float64 if backend == "native" else torch.float32
    return torch.full((), learning_rate, dtype=dtype, device=like.device)


def _merged(ids: Tensor, rows: Tensor, num_words: int) -> tuple[Tensor, Tensor]:
    """Return the distinct ids and the sum of each id's rows; copies nothing if they are distinct and sorted already."""
    inside = (ids >= 0) & (ids < num_words)
    if not inside.all():
        ids, rows = ids[inside], rows[inside]
    shape = (num_words, *rows.shape[1:])
    gradient = coalesced(
        torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, device=rows.device, check_invariants=False)
    )
    return gradient.indices()[0], gradient.values()


# On a CPU, torch has kernels as good: C++ has the rows of tables alone.
register_op("adagrad_", lambda a: None)
register_op("adagrad_rows_", lambda a: None)
register_op("square_norm", lambda a: a.tensors[0].new_empty(()))
register_op("merged_square_norm", lambda a: a.rows.new_empty(()))
register("adagrad", "native", "triton", kernels="elmo_fast.ops.adagrad.kernels")
