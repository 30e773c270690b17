"""What the Triton backends of the losses over a shared sample have in common: operands, gradients chunk by chunk."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _sampled_kernels as kernels
from elmo_fast.ops import _softmax
from elmo_fast.ops._memory import explained
from elmo_fast.ops._table_rows import table_gradient
from elmo_fast.ops._triton import Tiles, add_product, cdiv, launch, operand_dtype


class Drawn(NamedTuple):
    """The rows of hidden states and one sample of the table, as kernels multiply them, and room for the losses."""

    operands: Tensor
    """hidden states, rounded, [N, D]"""
    rows: Tensor
    """the samples' rows of the table, rounded, [S, D]"""
    offsets: Tensor
    """what is added to the samples' products, [S]"""
    ids: Tensor
    """all words, the targets first, clamped into the table, [N + S] int64"""
    true: Tensor
    """the targets' logits, [N]"""
    sums: Tensor
    """[planes, tiles of words, N], to be written"""
    losses: Tensor
    """[N], to be written"""
    kept: Tensor
    """numbers per row for the backward pass, [N] or [N, numbers], to be written"""
    tile: Tiles


def _rows(count: int, numbers: int) -> tuple[int, ...]:
    return (count,) if numbers == 1 else (count, numbers)


def gather(op: str, a: Any, law: Tensor | None, correction: str, term: float, planes: int, numbers: int) -> Drawn:
    """Rounds hidden states and the samples' rows, and takes the targets' logits.

    law, correction, term: as `_softmax_kernels.offset_of` has them; planes: of the sums; numbers: per row of `kept`.
    """
    (count, width), size, device, dtype = a.hidden.shape, len(a.samples), a.hidden.device, operand_dtype(a.precision)
    _softmax.check_sizes(op, len(a.weight), size)
    tile = _softmax.tiles(count, size, width, dtype, device)
    per_row = width * dtype.itemsize + 16 + 4 * planes * cdiv(size, tile.columns)
    needed = count * per_row + size * (width * dtype.itemsize + 12)
    with explained(op, "rows", needed, per_row, count, device):
        operands, rows = (torch.empty(n, width, dtype=dtype, device=device) for n in (count, size))
        offsets = torch.empty(size, dtype=torch.float32, device=device)
        ids = torch.empty(count + size, dtype=torch.int64, device=device)
        sums = _softmax.empty_sums(planes, size, count, tile, device)
        losses, kept = (torch.empty(_rows(count, n), dtype=torch.float32, device=device) for n in (1, numbers))
    table = a.weight, a.bias, law
    true = _softmax.true_logits(a.hidden, a.targets, *table, operands, ids, size, correction, term)
    high, columns = _softmax.row_blocks(width)
    launch(
        kernels.gather_samples, (cdiv(size, high),), a.samples, a.samples.stride(0), a.weight, *a.weight.stride(),
        a.bias, a.bias.stride(0), law, rows, offsets, ids.narrow(0, count, size), size, *a.weight.shape,
        CORRECTION=correction, TERM=term, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    return Drawn(operands, rows, offsets, ids, true, sums, losses, kept, tile)


def chunk_rows(count: int, size: int, itemsize: int, chunk_bytes: int, tile: int) -> int:
    """Rows per chunk: as many whole tiles as fit into `chunk_bytes` (at least one), in chunks of similar size."""
    most = max(tile, chunk_bytes // max(1, size * itemsize) // tile * tile)
    even = cdiv(max(count, 1), cdiv(max(count, 1), most))
    return min(most, cdiv(even, tile) * tile)


# (d_logits, column sums, number of the first tile of rows, rows, scale, tile): writes d(logits) of these rows
LogitGradients = Callable[[Tensor, Tensor, int, slice, Tensor | None, Tiles], None]


def gradients(
    op: str, a: Any, slopes: Tensor, write: LogitGradients, *, losses: bool, lift: int = _softmax.LIFT
) -> tuple[Tensor, Tensor, Tensor]:
    """d_hidden [N, D]; d_rows [N + S, D] and d_offsets [N + S] of the words `ids`, all float32.

    Per chunk of rows: d(logits) as operands, small enough to stay in L2, then two products. slopes, losses: as
    `_sampled_kernels.finish_rows` has them; lift: of float16's scale.
    """
    (count, width), size, dtype, device = a.operands.shape, len(a.rows), a.operands.dtype, a.grad.device
    tile = _softmax.tiles(count, size, width, dtype, device)
    step = chunk_rows(count, size, dtype.itemsize, a.chunk_bytes, tile.rows)
    per_row = 8 * width + 4 + 4 * size // tile.rows
    needed = min(step, count) * size * dtype.itemsize + size * (4 * width + 4) + count * per_row
    with explained(op, "rows", needed, per_row, count, device):
        chunk = torch.empty(min(step, count), size, dtype=dtype, device=device)
        d_hidden = torch.empty(count, width, dtype=torch.float32, device=device)
        d_rows = torch.empty(count + size, width, dtype=torch.float32, device=device)
        d_offsets = torch.empty(count + size, dtype=torch.float32, device=device)
        column_sums = torch.empty(cdiv(count, tile.rows), size, dtype=torch.float32, device=device)
    if count == 0:
        return d_hidden, d_rows.zero_(), d_offsets.zero_()
    scale = _softmax.scale_of(a.grad, dtype, lift)
    d_sampled, sampled_offsets = d_rows.narrow(0, count, size), d_offsets.narrow(0, count, size)
    for i in range(0, count, step):
        n = min(step, count - i)
        d = chunk.narrow(0, 0, n)
        write(d, column_sums, i // tile.rows, slice(i, i + n), scale, tile)
        add_product(d_hidden.narrow(0, i, n), d, a.rows, accumulate=False)
        add_product(d_sampled, d.t(), a.operands.narrow(0, i, n), accumulate=i > 0)
    torch.sum(column_sums, 0, out=sampled_offsets)
    if scale is not None:
        torch._foreach_mul_([d_sampled, sampled_offsets], scale.select(0, 1))
    high, columns = _softmax.row_blocks(width)
    launch(
        kernels.finish_rows, (cdiv(count, high),), a.grad, a.grad.stride(0), slopes, a.operands, a.ids,
        a.weight, *a.weight.stride(), scale, d_hidden, d_rows, d_offsets, count, width,
        LOSSES=losses, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    return d_hidden, d_rows, d_offsets


def fake(a: Any, numbers: int) -> tuple[Tensor, ...]:
    """losses, kept, operands, rows, offsets and ids of `Drawn`."""
    (count, width), size, dtype, of = a.hidden.shape, a.samples.shape[0], operand_dtype(a.precision), a.hidden.new_empty
    return (
        of(count), of(_rows(count, numbers)), of(count, width, dtype=dtype), of(size, width, dtype=dtype), of(size),
        a.targets.new_empty(count + size),
    )  # fmt: skip


def row_shapes(a: Any) -> dict[str, Any]:
    """The shapes of what `gradients` returns."""
    (count, width), words = a.operands.shape, a.ids.shape[0]
    return {"hidden": (count, width), "weight": (words, width), "bias": (words,)}


def tables(a: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """The gradients of weight and bias from those of the rows of the words `ids`."""
    shapes = {"weight": a.weight.shape, "bias": a.weight.shape[:1]}
    return rows | {name: table_gradient(shape, a.ids, rows[name], a.sparse) for name, shape in shapes.items()}
