"""highway in Triton: each layer is a torch product and a pointwise kernel; 16-bit operands, but the carry in float32.

All kernels are bound by memory. All of them treat rows from `count` on as zeros, whatever they hold.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._kernels import counted_rows, strips
from elmo_fast.ops._triton import cdiv, implement, launch, matmul

# A gate is saved as the smaller of itself and 1 - itself, times 2^16, negative where it is itself: in float16 both have
# a relative error of 2^-12 down to 1e-9. The pre-activation q in float16 would have |q| times as much; the gate as it
# is would leave nothing of 1 - gate. 2^-24 and 2^-100: a gate that is closed for good keeps its sign.
FOLD: tl.constexpr = tl.constexpr(65536.0)


@triton.jit
def unfolded(small, closes):
    """Return the gate and 1 - the gate, from the smaller of both and which one it is."""
    return tl.where(closes, small, 1 - small), tl.where(closes, 1 - small, small)


@triton.jit
def saved(transform, small, closes, dtype: tl.constexpr):
    """Return what the backward pass needs of a transform and its gate; float16 clamps the transform to 65504."""
    least: tl.constexpr = 2.0**-24 if dtype == tl.float16 else 2.0**-100
    small *= FOLD
    small = tl.where(small < least, least, small)
    if dtype == tl.float16:
        transform = tl.where(transform > 65504.0, 65504.0, tl.where(transform < -65504.0, -65504.0, transform))
    return transform.to(dtype), tl.where(closes, -small, small).to(dtype)


@triton.jit
def highway_forward_gate_kernel(
    product_ptr, x_ptr, bias_ptr, count_ptr, y_ptr, next_ptr, pre_ptr, rows, width, row, column,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute y from x and both products of a layer [N, 2W]; also y as the next product's operand, and what is saved.

    What is saved, [N, 2W], may take the products' place. 8 W bytes of products a row, 4 W of x and, in 16 bit, 4 W
    saved, 2 W of operands and, except for the last layer, 4 W of y.
    """
    r, c = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1) * BC + tl.arange(0, BC)
    within = c < width
    inside = (r < rows)[:, None] & within[None, :]
    counts = (r < counted_rows(count_ptr, rows))[:, None] & inside
    r = r.to(tl.int64)[:, None]
    at, both = r * width + c[None, :], r * (2 * width) + c[None, :]
    transform = tl.load(product_ptr + both, mask=counts, other=0.0)
    transform += tl.load(bias_ptr + c, mask=within, other=0.0)[None, :]
    gate = tl.load(product_ptr + width + both, mask=counts, other=0.0)
    gate += tl.load(bias_ptr + width + c, mask=within, other=0.0)[None, :]
    # The smaller of the gate and 1 - the gate, with all its digits: no exponential overflows.
    small, closes = tl.exp(-tl.abs(gate)), gate < 0
    small = small / (1 + small)
    if pre_ptr is not None:
        left, right = saved(transform, small, closes, pre_ptr.dtype.element_ty)
        tl.store(pre_ptr + both, left, mask=counts)
        tl.store(pre_ptr + width + both, right, mask=counts)
    gate, closed = unfolded(small, closes)
    x = tl.load(x_ptr + r * row + c.to(tl.int64)[None, :] * column, mask=counts, other=0.0)
    y = tl.fma(gate, x, closed * tl.where(transform < 0, 0.0, transform))
    y = tl.where(counts, y, 0.0)
    if y_ptr is not None:
        tl.store(y_ptr + at, y, mask=inside)
    if next_ptr is not None:
        tl.store(next_ptr + at, y.to(next_ptr.dtype.element_ty), mask=inside)


@triton.jit
def highway_backward_gate_kernel(
    product_ptr, carried_ptr, x_ptr, pre_ptr, count_ptr, d_ptr, dx_ptr, sums_ptr, rows, width, row, column,
    STRIP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of both products [N, 2W], as operands, from y's, and the part of dx that the gate carries.

    Also computes the sums of a strip of rows, for the bias. dy is a product plus what the gate after it carried. About
    22 W bytes a row in 16 bit (dy, x, pre, d, dx).
    """
    first, c = tl.program_id(0) * STRIP, tl.program_id(1) * BC + tl.arange(0, BC)
    n = counted_rows(count_ptr, rows)
    sum_transform = tl.zeros((BR, BC), tl.float32)
    sum_gate = tl.zeros((BR, BC), tl.float32)
    for step in range(0, STRIP, BR):
        r = first + step + tl.arange(0, BR)
        inside = (r < rows)[:, None] & (c < width)[None, :]
        # Rows past the count load zeros and store zeros: the products that follow read every row.
        counts = (r < n)[:, None] & inside
        r = r.to(tl.int64)[:, None]
        at, both = r * width + c[None, :], r * (2 * width) + c[None, :]
        dy = tl.load(product_ptr + r * row + c.to(tl.int64)[None, :] * column, mask=counts, other=0.0)
        if carried_ptr is not None:
            dy += tl.load(carried_ptr + at, mask=counts, other=0.0)
        x = tl.load(x_ptr + at, mask=counts, other=0.0).to(tl.float32)
        p = tl.load(pre_ptr + both, mask=counts, other=0.0).to(tl.float32)
        small = tl.load(pre_ptr + width + both, mask=counts, other=0.0).to(tl.float32)
        gate, closed = unfolded(tl.abs(small) / FOLD, small < 0)
        # As torch's relu: slope 0 at 0 and below, and 1 for NaN.
        d_transform = tl.where(p <= 0, 0.0, dy * closed)
        d_gate = dy * (x - tl.where(p < 0, 0.0, p)) * gate * closed
        sum_transform += d_transform
        sum_gate += d_gate
        tl.store(d_ptr + both, d_transform.to(d_ptr.dtype.element_ty), mask=inside)
        tl.store(d_ptr + width + both, d_gate.to(d_ptr.dtype.element_ty), mask=inside)
        if dx_ptr is not None:
            tl.store(dx_ptr + at, dy * gate, mask=inside)
    if sums_ptr is not None:
        to = sums_ptr + tl.program_id(0).to(tl.int64) * (2 * width) + c
        tl.store(to, tl.sum(sum_transform, axis=0), mask=c < width)
        tl.store(to + width, tl.sum(sum_gate, axis=0), mask=c < width)


@triton.jit
def highway_convert_kernel(
    x_ptr, bias_ptr, count_ptr, to_ptr, sums_ptr, rows, width, row, column,
    STRIP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Write x of any strides plus the bias, rounded; also sum a strip of rows of x.

    It may run in place.
    """
    first, c = tl.program_id(0) * STRIP, tl.program_id(1) * BC + tl.arange(0, BC)
    n = counted_rows(count_ptr, rows)
    total = tl.zeros((BR, BC), tl.float32)
    for step in range(0, STRIP, BR):
        r = first + step + tl.arange(0, BR)
        inside = (r < rows)[:, None] & (c < width)[None, :]
        counts = (r < n)[:, None] & inside
        r = r.to(tl.int64)[:, None]
        x = tl.load(x_ptr + r * row + c.to(tl.int64)[None, :] * column, mask=counts, other=0.0)
        if sums_ptr is not None:
            total += x
        if bias_ptr is not None:
            x = tl.where(counts, x + tl.load(bias_ptr + c, mask=c < width, other=0.0)[None, :], 0.0)
        tl.store(to_ptr + r * width + c[None, :], x.to(to_ptr.dtype.element_ty), mask=inside)
    if sums_ptr is not None:
        tl.store(sums_ptr + tl.program_id(0).to(tl.int64) * width + c, tl.sum(total, axis=0), mask=c < width)


def allocate(a: Any) -> tuple[Tensor, Tensor]:
    """Allocate what backward needs: inputs of the products [products, N, W], results of `saved` [layers, N, 2W].

    The first input is missing if it is x itself, and the results are if no gradient is needed.
    """
    dtype, number = getattr(torch, a.precision), len(a.weights) + (a.projection_weight is not None)
    of_x = dtype == torch.float32 and a.x.is_contiguous() and a.count is None
    kind = torch.float32 if dtype == torch.float32 else torch.float16
    pre = a.x.new_empty(len(a.weights) * a.save, a.x.shape[0], 2 * a.x.shape[1], dtype=kind)
    return a.x.new_empty(number - of_x, *a.x.shape, dtype=dtype), pre


def pack(weights: list[Tensor], projection: list[Tensor], precision: str) -> list[Tensor]:
    """Return 16-bit copies of the weights of layers and projection; none in float32, in which they are operands."""
    originals = [weight.detach() for weight in (*weights, *projection)]
    if precision == "float32":
        return []
    copies = [weight.new_empty(weight.shape, dtype=getattr(torch, precision)) for weight in originals]
    torch._foreach_copy_(copies, originals)
    return copies


def copies_of(a: Any) -> list[Tensor]:
    """Return what `pack` makes of the weights, now or before."""
    if a.packed and not a.save:
        return list(a.packed)
    return pack(a.weights, [] if a.projection_weight is None else [a.projection_weight], a.precision)


def factors_of(a: Any, operands: Tensor, copies: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs of all products, and their weights as operands: those of the layers, then the projection."""
    weights = copies or [weight.detach() for weight in (*a.weights, a.projection_weight) if weight is not None]
    return [a.x] * (len(weights) - len(operands)) + list(operands.unbind(0)), weights


def forward(a: Any) -> tuple[Tensor, list[Tensor]]:
    """Return the result, and with `save` what backward needs."""
    (rows, width), same, layers = a.x.shape, a.precision == "float32", len(a.weights)
    products = layers + (a.projection_weight is not None)
    (operands, pre), y = allocate(a), a.x
    copies = copies_of(a)
    inputs, weights = factors_of(a, operands, copies)
    grid, constants = strips(rows, width)
    high, wide = constants["BR"], constants["BC"]
    if inputs[0] is not a.x:
        launch(
            highway_convert_kernel, grid,
            y, None, a.count, inputs[0], None, rows, width, *y.stride(), **constants,
        )  # fmt: skip
    for i, bias in enumerate(a.biases):
        to_pre = pre[i] if a.save else None
        if same and to_pre is not None:
            product = torch.mm(inputs[i], weights[i].t(), out=to_pre)
        else:
            product = matmul(inputs[i], weights[i].t(), torch.float32)
        # The next input in float32 is y itself; in 16 bit, y is needed if a layer carries it, or if it is the last.
        x, to = y, inputs[i + 1] if i + 1 < products else None
        if same and to is not None:
            y, to = to, None
        elif to is None or i + 1 < layers:
            y = y.new_empty(rows, width)
        launch(
            highway_forward_gate_kernel, (cdiv(rows, high), grid[1]), product, x, bias.contiguous(), a.count,
            None if y is x else y, to, to_pre, rows, width, *x.stride(), BR=high, BC=wide,
        )  # fmt: skip
    if a.projection_weight is not None:
        y = matmul(inputs[-1], weights[-1].t(), torch.float32)
        if a.projection_bias is not None or a.count is not None:
            bias = None if a.projection_bias is None else a.projection_bias.contiguous()
            grid, constants = strips(*y.shape)
            launch(highway_convert_kernel, grid, y, bias, a.count, y, None, *y.shape, *y.stride(), **constants)
    return y, [operands, pre, *copies] if a.save else []


def backward(a: Any) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    """Compute the gradients of x, the weights, the biases and the projection; of size 0 if not needed."""
    operands, pre, *copies = a.saved
    inputs, weights = factors_of(a, operands, copies)
    dy, new, (rows, width) = a.grad, a.grad.new_empty, a.x.shape
    d_weights, d_biases, d_projection, d_bias = list[Tensor](), list[Tensor](), new(0), new(0)
    carried = None  # the incoming gradient is a product plus what a gate carried
    if a.projection_weight is not None:
        grid, constants = strips(*dy.shape)
        d, sums = inputs[-1].new_empty(dy.shape), new(grid[0], dy.shape[1]) if a.need_weights else None
        launch(highway_convert_kernel, grid, dy, None, a.count, d, sums, *dy.shape, *dy.stride(), **constants)
        if sums is not None:
            d_projection, d_bias = matmul(d.t(), inputs[-1], torch.float32), sums.sum(0)
        if a.weights or a.need_x:
            dy = matmul(d, weights[-1], torch.float32)
    grid, constants = strips(rows, width)
    for i in reversed(range(len(a.weights))):
        # Gradients of the layer's products, as operands, and the part of dx that the gate carries.
        d, dx = inputs[i].new_empty(rows, 2 * width), new(rows, width) if i > 0 or a.need_x else None
        sums = new(grid[0], 2 * width) if a.need_weights else None
        launch(
            highway_backward_gate_kernel, grid,
            dy, carried, inputs[i], pre[i], a.count, d, dx, sums, rows, width, *dy.stride(), **constants,
        )  # fmt: skip
        if sums is not None:
            d_weights.insert(0, matmul(d.t(), inputs[i], torch.float32))
            d_biases.insert(0, sums.sum(0))
        if dx is not None:
            dy, carried = matmul(d, weights[i], torch.float32), dx
    d_x = new(0) if not a.need_x else dy if carried is None else carried.add_(dy)
    return d_x, d_weights, d_biases, d_projection, d_bias


implement("highway", forward, lambda a: [*allocate(a), *copies_of(a)])
implement("highway_backward", backward)
