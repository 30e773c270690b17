"""full_softmax in Triton: log-sum-exps over tiles of words, merged in order; the forward pass writes no logits.

The table is 1.6 GB of float32 for 793,471 words. Rounding it inside the tiles would read 4 bytes per element for every
tile of rows, 32 GB of L2 for 2560 rows; a chunk rounded first is read from memory once, whatever the number of rows
(0.4 ms at 4.3 TB/s, the floor for few rows; for many rows the floor is 2 N V D operations, 2.6 ms for 2560). No copy of
the table is cached.
"""

from typing import Any

import torch
from torch import Tensor

from elmo_fast.ops import _softmax_triton, _triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._triton import cdiv, define, explained, operand_dtype
from elmo_fast.ops.full_softmax.op import FullSoftmaxArguments

# Words per launch, so that 32-bit offsets within a tile of any [rows, words] do not overflow.
MOST_WORDS = 2**20


def run(a: FullSoftmaxArguments) -> Tensor:
    return _op(*a)[0]


def _whole_tiles(most: int, tile: int, all_: int) -> int:
    return min(all_, max(tile, min(most, MOST_WORDS) // tile * tile))


def _scratch(weight: Tensor, words: int, dtype: torch.dtype) -> Tensor | None:
    """Return room for a chunk as operands, or None if the table's own rows serve."""
    if weight.dtype == dtype and weight.is_contiguous():
        return None
    return torch.empty(words, weight.shape[1], dtype=dtype, device=weight.device)


def _forward(a: Any) -> tuple[Tensor, ...]:
    """Return losses [N]; for backward: log-sum-exps [N, 2], operands of hidden [N, D], targets [N]."""
    (count, width), size, device, dtype = a.hidden.shape, len(a.weight), a.hidden.device, operand_dtype(a.precision)
    _softmax_triton.check_sizes("full_softmax", size, 0)
    tile = _softmax_triton.tiles(count, size, width, dtype, device)
    step = _whole_tiles(a.chunk_bytes // max(1, width * dtype.itemsize), tile.columns, size)
    per_row = width * dtype.itemsize + 32 + 8 * cdiv(step, tile.columns)
    with explained("full_softmax", "rows", count * per_row + step * width * dtype.itemsize, per_row, count, device):
        operands = torch.empty(count, width, dtype=dtype, device=device)
        ids = torch.empty(count, dtype=torch.int64, device=device)
        losses, totals = (torch.empty(*shape, dtype=torch.float32, device=device) for shape in ((count,), (count, 2)))
        state = torch.empty(2, count, dtype=torch.float64, device=device)
        sums = _softmax_triton.empty_sums(2, step, count, tile, device)
        scratch = _scratch(a.weight, step, dtype)
    table = a.weight, a.bias, None
    true = _softmax_triton.launch_true_logits(a.hidden, a.targets, *table, operands, ids, 0, "none", 0.0)
    bias = a.bias.contiguous()
    for i in range(0, size, step):
        words = min(step, size - i)
        rows, last = _softmax_triton.rounded_rows(a.weight, i, words, scratch), i + words == size
        parts = _softmax_triton.launch_log_sums(sums, operands, rows, bias.narrow(0, i, words), ids, None, i, tile)
        results = (losses, totals) if last else (None, None)
        _softmax_triton.launch_merge(sums, parts, state, true, *results, first=i == 0)
    return losses, totals, operands, ids


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute d_hidden [N, D], d_weight [V, D] and d_bias [V], float32.

    Logits are computed again in chunks of rows x words of `chunk_bytes` (at least one tile), with two products for
    each.
    """
    (count, width), size, dtype, device = a.operands.shape, len(a.weight), a.operands.dtype, a.grad.device
    tile = _softmax_triton.tiles(count, size, width, dtype, device)
    high = _whole_tiles(a.chunk_bytes // (tile.columns * dtype.itemsize), tile.rows, max(count, 1))
    wide = _whole_tiles(a.chunk_bytes // (high * dtype.itemsize), tile.columns, size)
    row_tiles = cdiv(high, tile.rows)
    needed = high * wide * dtype.itemsize + 4 * (row_tiles + 1) * wide + 4 * (count + size) * (width + 1)
    with explained("full_softmax", "rows", needed, 4 * width, count, device):
        chunk = torch.empty(high * wide, dtype=dtype, device=device)
        column_sums = torch.empty(row_tiles * wide, dtype=torch.float32, device=device)
        d_hidden = torch.empty(count, width, dtype=torch.float32, device=device)
        d_weight = torch.empty(size, width, dtype=torch.float32, device=device)
        d_bias = torch.empty(size, dtype=torch.float32, device=device)
        scratch = _scratch(a.weight, wide, dtype)
    if count == 0:
        return d_hidden, d_weight.zero_(), d_bias.zero_()
    scale, bias = _softmax_triton.scale_of(a.grad, dtype), a.bias.contiguous()
    for i in range(0, count, high):
        n = min(high, count - i)
        parts = (a.operands, a.ids, a.totals, a.losses, a.grad, d_hidden)
        h, target, total, loss, g, d_h = (x.narrow(0, i, n) for x in parts)
        for j in range(0, size, wide):
            words = min(wide, size - j)
            rows, d = (
                _softmax_triton.rounded_rows(a.weight, j, words, scratch),
                chunk.narrow(0, 0, n * words).view(n, words),
            )
            tiles = cdiv(n, tile.rows)
            sums = column_sums.narrow(0, 0, tiles * words).view(tiles, words)
            _softmax_triton.launch_logit_gradients(
                d, sums, 0, h, rows, bias.narrow(0, j, words), target, None, j, total, loss, g, scale, tile
            )
            _triton.add_product(d_h, d, rows, accumulate=j > 0)
            _triton.add_product(d_weight.narrow(0, j, words), d.t(), h, accumulate=i > 0)
            if i == 0:
                torch.sum(sums, 0, out=d_bias.narrow(0, j, words))
            else:
                d_bias.narrow(0, j, words).add_(sums.sum(0))
    if scale is not None:
        torch._foreach_mul_([d_hidden, d_weight, d_bias], scale.select(0, 1))
    return d_hidden, d_weight, d_bias


def _fake(a: Any) -> tuple[Tensor, ...]:
    losses = a.hidden.new_empty(a.hidden.shape[0])
    operands = a.hidden.new_empty(a.hidden.shape, dtype=operand_dtype(a.precision))
    return losses, losses.new_empty(*losses.shape, 2), operands, a.targets.new_empty(losses.shape)


define(
    "full_softmax_backward(Tensor grad, Tensor losses, Tensor totals, Tensor operands, Tensor ids, Tensor weight, "
    "Tensor bias, int chunk_bytes) -> (Tensor hidden, Tensor weight, Tensor bias)",
    _backward,
)
_op = define(
    "full_softmax(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, str precision, int chunk_bytes) "
    "-> (Tensor losses, Tensor totals, Tensor operands, Tensor ids)",
    _forward,
    _fake,
    Backward(shapes=lambda a: {"hidden": a.operands.shape}),
)
