"""hierarchical_softmax in Triton: a program per row walks its path over the table itself, one launch each way.

No host sync.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._kernels import logistic, softplus
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, implement, launch


@triton.jit
def hierarchical_softmax_forward_paths_kernel(
    hidden, hidden_row, hidden_col, targets, targets_step, weight, weight_row, weight_col, bias, bias_step,
    first, nodes, codes, operands, losses, slopes, ids, words, steps, inner, width, longest,
    STEPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Compute losses [N], round hidden to operands, and write slope and node of all `longest` steps of each row.

    A slope is d loss / d score, 0 past the row's path; the node past the path is the one of its last step. The loss of
    a word off the tree, or of a path that leaves it, is NaN. Bound by memory: each step reads its node's row of the
    table, 4 bytes per element, those near the root from L2.
    """
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row * targets_step)
    # Indices from the caller become addresses: each is clamped, and a wrong one makes the loss NaN.
    known = (target >= 0) & (target < words)
    target = tl.minimum(tl.maximum(target, 0), words - 1).to(tl.int64)
    begin, end = tl.load(first + target), tl.load(first + target + 1)
    known = known & (begin >= 0) & (begin <= end) & (end <= steps) & (end - begin <= longest)
    begin = tl.minimum(tl.maximum(begin, 0), steps)
    length = tl.minimum(tl.minimum(tl.maximum(end, begin), steps) - begin, longest).to(tl.int32)
    loss = 0.0
    for start in range(0, longest, STEPS):
        j = start + tl.arange(0, STEPS)
        on = j < length
        # Past the path its last node is repeated, so that all of `ids` are rows of the table when gradients are summed.
        step = begin + tl.maximum(tl.minimum(j, length - 1), 0)
        node = tl.load(nodes + step, mask=(j < longest) & (length > 0), other=0)
        fine = (node >= 0) & (node < inner) & known
        node = tl.maximum(tl.minimum(node, inner - 1), 0)
        score = tl.zeros([STEPS], tl.float32)
        for left in range(0, width, WIDTH):
            col = left + tl.arange(0, WIDTH)
            h = tl.load(hidden + row * hidden_row + col.to(tl.int64) * hidden_col, mask=col < width, other=0.0)
            h = h.to(operands.dtype.element_ty)
            tl.store(operands + row * width + col, h, mask=(col < width) & (start == 0))
            w_at = weight + node[:, None] * weight_row + col.to(tl.int64)[None, :] * weight_col
            w = tl.load(w_at, mask=on[:, None] & (col < width)[None, :], other=0.0)
            w = w.to(operands.dtype.element_ty).to(tl.float32)
            score += tl.sum(w * h.to(tl.float32)[None, :], axis=1)
        score += tl.load(bias + node * bias_step, mask=on, other=0.0)
        sign = tl.where(tl.load(codes + step, mask=on, other=0) == 0, -1.0, 1.0)
        score = tl.where(fine, sign * score, float("nan"))
        loss += tl.sum(tl.where(on, softplus(score), 0.0))
        at = row * longest + j
        tl.store(slopes + at, tl.where(on, sign * logistic(score), 0.0), mask=j < longest)
        tl.store(ids + at, node, mask=j < longest)
    tl.store(losses + row, tl.where(known, loss, float("nan")))


@triton.jit
def hierarchical_softmax_backward_paths_kernel(
    grad, grad_step, slopes, operands, ids, weight, weight_row, weight_col, d_hidden, d_rows, d_offsets,
    width, longest, STEPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Compute d_hidden [N, D], d_rows [N longest, D] and d_offsets [N longest].

    d_hidden adds the nodes of a path, times slope and g, in order; d_rows is hidden, times slope and g, and d_offsets
    is slope times g. A slope of 0 reads no node and gives 0. Bound by memory: 4 bytes read and 4 written per element
    and step.
    """
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    g = tl.load(grad + row * grad_step)
    h = tl.load(operands + row * width + col, mask=col < width, other=0.0)
    total = tl.zeros([WIDTH], tl.float32)
    for start in range(0, longest, STEPS):
        j = start + tl.arange(0, STEPS)
        at = row * longest + j
        slope = tl.load(slopes + at, mask=j < longest, other=0.0)
        d, on = slope * g, slope != 0
        d = tl.where(on, d, 0.0)
        node = tl.load(ids + at, mask=on, other=0)
        w_at = weight + node[:, None] * weight_row + col.to(tl.int64)[None, :] * weight_col
        w = tl.load(w_at, mask=on[:, None] & (col < width)[None, :], other=0.0).to(h.dtype).to(tl.float32)
        total += tl.sum(d[:, None] * w, axis=0)
        rows = tl.where(on[:, None], d[:, None] * h.to(tl.float32)[None, :], 0.0)
        mask = (j < longest)[:, None] & (col < width)[None, :]
        tl.store(d_rows + at[:, None] * width + col[None, :], rows, mask=mask)
        tl.store(d_offsets + at, d, mask=(j < longest) & (tl.program_id(1) == 0))
    tl.store(d_hidden + row * width + col, total, mask=col < width)


def _tile(width: int) -> dict[str, int]:
    """Return nodes and columns of one step of a program: 4096 numbers of the table at a time, 32 per thread."""
    columns = ceil_power_of_two(width, 16, 512)
    return {"STEPS": min(16, 4096 // columns), "WIDTH": columns}


def _forward(a: Any) -> tuple[Tensor, list[Tensor]]:
    """Return losses [N]; for backward: slopes of steps [N, longest], operands of hidden [N, D], nodes [N longest]."""
    count, width = a.hidden.shape
    losses, (slopes, operands, ids) = a.hidden.new_empty(count), _saved(a)
    tree = a.first.contiguous(), a.nodes.contiguous(), a.codes.contiguous()
    launch(
        hierarchical_softmax_forward_paths_kernel, (count,),
        a.hidden, *a.hidden.stride(), a.targets, a.targets.stride(0), a.weight,
        *a.weight.stride(), a.bias, a.bias.stride(0), *tree, operands, losses, slopes, ids, len(a.first) - 1,
        len(a.nodes), len(a.weight), width, a.longest, **_tile(width),
    )  # fmt: skip
    return losses, [slopes, operands, ids] if a.save else []


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute d_hidden [N, D], and d_rows [N longest, D] and d_offsets of the saved nodes, float32; no nodes anew."""
    slopes, operands, ids = a.saved
    (count, longest), width, new = slopes.shape, operands.shape[1], slopes.new_empty
    d_hidden, d_rows, d_offsets = new(count, width), new(count * longest, width), new(count * longest)
    tile = _tile(width)
    launch(
        hierarchical_softmax_backward_paths_kernel, (count, max(1, cdiv(width, tile["WIDTH"]))),
        a.grad, a.grad.stride(0), slopes,
        operands, ids, a.weight, *a.weight.stride(), d_hidden, d_rows, d_offsets, width, longest, **tile,
    )  # fmt: skip
    return d_hidden, ids.new_empty(0), d_rows, d_offsets  # an op's results may not be its arguments


def _saved(a: Any) -> list[Tensor]:
    """Allocate what backward needs: slopes of steps, operands of hidden, nodes."""
    (count, width), new = a.hidden.shape, a.hidden.new_empty
    operands = new(count, width, dtype=getattr(torch, a.precision))
    return [new(count, a.longest), operands, a.nodes.new_empty(count * a.longest)]


implement("hierarchical_softmax", _forward, _saved)
implement("hierarchical_softmax_backward", _backward)
