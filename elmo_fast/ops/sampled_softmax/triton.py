"""sampled_softmax in Triton: logits that are never written, their gradient in chunks that stay in L2, no host sync."""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _softmax
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._memory import explained
from elmo_fast.ops._table_rows import table_gradient
from elmo_fast.ops._triton import add_product, cdiv, define, launch, operand_dtype
from elmo_fast.ops.log_uniform_sample.op import CORRECTIONS
from elmo_fast.ops.sampled_softmax import kernels
from elmo_fast.ops.sampled_softmax.op import SampledSoftmaxArguments


def run(a: SampledSoftmaxArguments) -> Tensor:
    tries, device = a.tries, a.hidden.device
    if isinstance(tries, Tensor):
        tries = tries.to(device, torch.int64, non_blocking=True)
    else:
        tries = torch.full((), tries, dtype=torch.int64, device=device)
    return _op(*a._replace(tries=tries))[0]


def _forward(a: Any) -> tuple[Tensor, ...]:
    """losses [N]; for backward: log-sum-exps [N], operands of hidden [N, D] and of the samples' rows [S, D], their
    offsets [S], and all words [N + S], targets first."""
    (count, width), size, device = a.hidden.shape, len(a.samples), a.hidden.device
    _softmax.check_sizes("sampled_softmax", len(a.weight), size)
    dtype, term = operand_dtype(a.precision), CORRECTIONS[a.correction]
    tile = _softmax.tiles(count, size, width, dtype)
    per_row = width * dtype.itemsize + 16 + 8 * cdiv(size, tile.columns)
    needed = count * per_row + size * (width * dtype.itemsize + 12)
    with explained("sampled_softmax", "rows", needed, per_row, count, device):
        operands, rows = (torch.empty(n, width, dtype=dtype, device=device) for n in (count, size))
        offsets = torch.empty(size, dtype=torch.float32, device=device)
        ids = torch.empty(count + size, dtype=torch.int64, device=device)
        sums = _softmax.empty_sums(size, count, tile, device)
        losses, totals = (torch.empty(count, dtype=torch.float32, device=device) for _ in range(2))
    wanted, sampled = ids.split([count, size])
    table = a.weight, a.bias, a.tries
    true = _softmax.true_logits(a.hidden, a.targets, *table, operands, ids, size, a.correction, term)
    high, columns = _softmax.row_blocks(width)
    launch(
        kernels.gather_samples, (cdiv(size, high),), a.samples, a.samples.stride(0), a.weight,
        *a.weight.stride(), a.bias, a.bias.stride(0), a.tries, rows, offsets, sampled, size, *a.weight.shape,
        CORRECTION=a.correction, TERM=term, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    parts = _softmax.log_sums(sums, operands, rows, offsets, wanted, sampled, 0, tile)
    _softmax.merge(sums, parts, None, true, losses, totals, first=True)
    return losses, totals, operands, rows, offsets, ids


def chunk_rows(count: int, size: int, itemsize: int, chunk_bytes: int, tile: int) -> int:
    """Rows of a chunk: whole tiles, as many as fit into `chunk_bytes` (at least one), all chunks of like size."""
    most = max(tile, chunk_bytes // max(1, size * itemsize) // tile * tile)
    even = cdiv(max(count, 1), cdiv(max(count, 1), most))
    return min(most, cdiv(even, tile) * tile)


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """d_hidden [N, D]; d_rows [N + S, D] and d_offsets [N + S] of the words `ids`, all float32.

    Per chunk of rows: logits again -> their gradient as operands, small enough to stay in L2, then two products.
    """
    (count, width), size, dtype, device = a.operands.shape, len(a.rows), a.operands.dtype, a.grad.device
    tile = _softmax.tiles(count, size, width, dtype)
    step = chunk_rows(count, size, dtype.itemsize, a.chunk_bytes, tile.rows)
    per_row = 8 * width + 4 + 4 * size // tile.rows
    needed = min(step, count) * size * dtype.itemsize + size * (4 * width + 4) + count * per_row
    with explained("sampled_softmax", "rows", needed, per_row, count, device):
        chunk = torch.empty(min(step, count), size, dtype=dtype, device=device)
        d_hidden = torch.empty(count, width, dtype=torch.float32, device=device)
        d_rows = torch.empty(count + size, width, dtype=torch.float32, device=device)
        d_offsets = torch.empty(count + size, dtype=torch.float32, device=device)
        column_sums = torch.empty(cdiv(count, tile.rows), size, dtype=torch.float32, device=device)
    if count == 0:
        return d_hidden, d_rows.zero_(), d_offsets.zero_()
    scale = _softmax.scale_of(a.grad, dtype)
    wanted, sampled = a.ids.split([count, size])
    d_sampled = d_rows.narrow(0, count, size)
    for i in range(0, count, step):
        n = min(step, count - i)
        d = chunk.narrow(0, 0, n)
        h, target, total, loss, g, d_h = (
            x.narrow(0, i, n) for x in (a.operands, wanted, a.totals, a.losses, a.grad, d_hidden)
        )
        _softmax.logit_gradients(
            d, column_sums, i // tile.rows, h, a.rows, a.offsets, target, sampled, 0, total, loss, g, scale, tile
        )
        add_product(d_h, d, a.rows, accumulate=False)
        add_product(d_sampled, d.t(), h, accumulate=i > 0)
    sampled_offsets = d_offsets.narrow(0, count, size)
    torch.sum(column_sums, 0, out=sampled_offsets)
    if scale is not None:
        torch._foreach_mul_([d_sampled, sampled_offsets], scale.select(0, 1))
    high, columns = _softmax.row_blocks(width)
    launch(
        kernels.finish_rows, (cdiv(count, high),), a.grad, a.grad.stride(0), a.losses, a.operands, a.ids,
        a.weight, *a.weight.stride(), scale, d_hidden, d_rows, d_offsets, count, width, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    return d_hidden, d_rows, d_offsets


def _fake(a: Any) -> tuple[Tensor, ...]:
    (count, width), size, dtype, of = a.hidden.shape, a.samples.shape[0], operand_dtype(a.precision), a.hidden.new_empty
    return (
        of(count), of(count), of(count, width, dtype=dtype), of(size, width, dtype=dtype), of(size),
        a.targets.new_empty(count + size),
    )  # fmt: skip


def _shapes(a: Any) -> dict[str, Any]:
    (count, width), words = a.operands.shape, a.ids.shape[0]
    return {"hidden": (count, width), "weight": (words, width), "bias": (words,)}


def _tables(a: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """The gradients of weight and bias from those of the rows of the words `ids`."""
    shapes = {"weight": a.weight.shape, "bias": a.weight.shape[:1]}
    return rows | {name: table_gradient(shape, a.ids, rows[name], a.sparse) for name, shape in shapes.items()}


define(
    "sampled_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor rows, "
    "Tensor offsets, Tensor ids, Tensor weight, bool sparse, int chunk_bytes) "
    "-> (Tensor hidden, Tensor weight, Tensor bias)",
    _backward,
)
_op = define(
    "sampled_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor tries, "
    "str correction, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor totals, Tensor operands, Tensor rows, Tensor offsets, Tensor ids)",
    _forward,
    _fake,
    Backward(shapes=_shapes, finish=_tables),
)
