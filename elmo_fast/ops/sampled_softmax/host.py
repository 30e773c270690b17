"""sampled_softmax on a GPU, the host's side: what is allocated, cut into chunks and launched."""

import torch
from torch import Tensor

from elmo_fast.ops import _softmax
from elmo_fast.ops._memory import explained
from elmo_fast.ops._triton import add_product, launch, operand_dtype
from elmo_fast.ops.log_uniform_sample.op import CORRECTIONS
from elmo_fast.ops.sampled_softmax import kernels


def forward(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, samples: Tensor, tries: Tensor, correction: str,
    precision: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    """losses [N]; for backward: log-sum-exps [N], operands of hidden [N, D] and of the samples' rows [S, D], their
    offsets [S], and all words [N + S], targets first."""
    (count, width), size, device = hidden.shape, len(samples), hidden.device
    _softmax.check_sizes("sampled_softmax", len(weight), size)
    dtype, term = operand_dtype(precision), CORRECTIONS[correction]
    tile = _softmax.tiles(count, size, width, dtype)
    per_row = width * dtype.itemsize + 16 + 8 * _softmax.cdiv(size, tile.words)
    needed = count * per_row + size * (width * dtype.itemsize + 12)
    with explained("sampled_softmax", "rows", needed, per_row, count, device):
        operands, rows = (torch.empty(n, width, dtype=dtype, device=device) for n in (count, size))
        offsets = torch.empty(size, dtype=torch.float32, device=device)
        ids = torch.empty(count + size, dtype=torch.int64, device=device)
        sums = _softmax.empty_sums(size, count, tile, device)
        losses, totals = (torch.empty(count, dtype=torch.float32, device=device) for _ in range(2))
    wanted, sampled = ids.split([count, size])
    true = _softmax.true_logits(hidden, targets, weight, bias, tries, operands, ids, size, correction, term)
    high, columns = _softmax.row_blocks(width)
    launch(
        kernels.gather_samples, (_softmax.cdiv(size, high),), samples, samples.stride(0), weight, *weight.stride(),
        bias, bias.stride(0), tries, rows, offsets, sampled, size, *weight.shape,
        CORRECTION=correction, TERM=term, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    parts = _softmax.log_sums(sums, operands, rows, offsets, wanted, sampled, 0, tile)
    _softmax.merge(sums, parts, None, true, losses, totals, first=True)
    return losses, totals, operands, rows, offsets, ids


def chunk_rows(count: int, size: int, itemsize: int, chunk_bytes: int, tile: int) -> int:
    """Rows of a chunk: whole tiles, as many as fit into `chunk_bytes` (at least one), all chunks of like size."""
    most = max(tile, chunk_bytes // max(1, size * itemsize) // tile * tile)
    even = _softmax.cdiv(max(count, 1), _softmax.cdiv(max(count, 1), most))
    return min(most, _softmax.cdiv(even, tile) * tile)


def backward(
    grad: Tensor, losses: Tensor, totals: Tensor, operands: Tensor, rows: Tensor, offsets: Tensor, ids: Tensor,
    weight: Tensor, chunk_bytes: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """d_hidden [N, D]; d_rows [N + S, D] and d_offsets [N + S] of the words `ids`, all float32.

    Per chunk of rows: logits again -> their gradient as operands, small enough to stay in L2, then two products.
    """
    (count, width), size, dtype, device = operands.shape, len(rows), operands.dtype, grad.device
    tile = _softmax.tiles(count, size, width, dtype)
    step = chunk_rows(count, size, dtype.itemsize, chunk_bytes, tile.rows)
    per_row = 8 * width + 4 + 4 * size // tile.rows
    needed = min(step, count) * size * dtype.itemsize + size * (4 * width + 4) + count * per_row
    with explained("sampled_softmax", "rows", needed, per_row, count, device):
        chunk = torch.empty(min(step, count), size, dtype=dtype, device=device)
        d_hidden = torch.empty(count, width, dtype=torch.float32, device=device)
        d_rows = torch.empty(count + size, width, dtype=torch.float32, device=device)
        d_offsets = torch.empty(count + size, dtype=torch.float32, device=device)
        column_sums = torch.empty(_softmax.cdiv(count, tile.rows), size, dtype=torch.float32, device=device)
    if count == 0:
        return d_hidden, d_rows.zero_(), d_offsets.zero_()
    scale = _softmax.scale_of(grad, dtype)
    wanted, sampled = ids.split([count, size])
    d_sampled = d_rows.narrow(0, count, size)
    for i in range(0, count, step):
        n = min(step, count - i)
        d, h, target, total, loss, g, d_h = (
            x.narrow(0, 0 if x is chunk else i, n) for x in (chunk, operands, wanted, totals, losses, grad, d_hidden)
        )
        _softmax.logit_gradients(
            d, column_sums, i // tile.rows, h, rows, offsets, target, sampled, 0, total, loss, g, scale, tile
        )
        add_product(d_h, d, rows, accumulate=False)
        add_product(d_sampled, d.t(), h, accumulate=i > 0)
    sampled_offsets = d_offsets.narrow(0, count, size)
    torch.sum(column_sums, 0, out=sampled_offsets)
    if scale is not None:
        torch._foreach_mul_([d_sampled, sampled_offsets], scale.select(0, 1))
    high, columns = _softmax.row_blocks(width)
    launch(
        kernels.finish_rows, (_softmax.cdiv(count, high),), grad, grad.stride(0), losses, operands, ids, weight,
        *weight.stride(), scale, d_hidden, d_rows, d_offsets, count, width, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    return d_hidden, d_rows, d_offsets
