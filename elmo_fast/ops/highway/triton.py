"""highway in Triton: each layer is a torch product and a pointwise kernel; 16-bit operands, but the carry in float32.

All kernels are bound by memory. All of them treat rows from `count` on as zeros, whatever they hold.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import counted_rows, finite_size, fitting, scale_of, strips
from elmo_fast.ops._triton import explained
from elmo_fast.ops._weights import rounded_copy
from elmo_fast.ops.highway.native import BACKWARD, result
from elmo_fast.ops.highway.op import HighwayArguments

# The largest incoming gradient is scaled to 2^LIFT. Those of the layers' products keep its scale (`fitting`) while
# their largest is less than 2^9 times as small, as behind gates open to 0.99, and less than 2^6 times as large.
LIFT = 9

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
def mix(
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
def unmix(
    product_ptr, carried_ptr, from_scale_ptr, to_scale_ptr, unless_ptr, x_ptr, pre_ptr, count_ptr,
    d_ptr, dx_ptr, sums_ptr, most_ptr, rows, width, row, column,
    STRIP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of both products [N, 2W], as operands, from y's, and the part of dx that the gate carries.

    Also computes the sums of a strip of rows, for the bias, and the largest of its gradients. dy is a product (over the
    scale that float16 needed) plus what the gate after it carried. With unless_ptr nothing is done if that scale is the
    one asked for. About 22 W bytes a row in 16 bit (dy, x, pre, d, dx).
    """
    if unless_ptr is not None:  # noqa: SIM102 (one is known when compiling, the other is not)
        if tl.load(unless_ptr) == tl.load(to_scale_ptr):
            return
    first, c = tl.program_id(0) * STRIP, tl.program_id(1) * BC + tl.arange(0, BC)
    n = counted_rows(count_ptr, rows)
    sum_transform = tl.zeros((BR, BC), tl.float32)
    sum_gate = tl.zeros((BR, BC), tl.float32)
    most = tl.zeros((BR, BC), tl.float32)
    scale = 1.0
    if to_scale_ptr is not None:
        scale = tl.load(to_scale_ptr)
    for step in range(0, STRIP, BR):
        r = first + step + tl.arange(0, BR)
        inside = (r < rows)[:, None] & (c < width)[None, :]
        counts = (r < n)[:, None] & inside
        r = r.to(tl.int64)[:, None]
        at, both = r * width + c[None, :], r * (2 * width) + c[None, :]
        dy = tl.load(product_ptr + r * row + c.to(tl.int64)[None, :] * column, mask=counts, other=0.0)
        if from_scale_ptr is not None:
            dy *= tl.load(from_scale_ptr + 1)
        if carried_ptr is not None:
            dy += tl.load(carried_ptr + at, mask=counts, other=0.0)
        x = tl.load(x_ptr + at, mask=counts, other=0.0).to(tl.float32)
        p = tl.load(pre_ptr + both, mask=counts, other=0.0).to(tl.float32)
        small = tl.load(pre_ptr + width + both, mask=counts, other=0.0).to(tl.float32)
        gate, closed = unfolded(tl.abs(small) / FOLD, small < 0)
        d_transform = tl.where(p <= 0, 0.0, dy * closed)
        d_gate = dy * (x - tl.where(p < 0, 0.0, p)) * gate * closed
        sum_transform += d_transform
        sum_gate += d_gate
        most = tl.maximum(most, tl.maximum(finite_size(d_transform), finite_size(d_gate)))
        tl.store(d_ptr + both, (d_transform * scale).to(d_ptr.dtype.element_ty), mask=inside)
        tl.store(d_ptr + width + both, (d_gate * scale).to(d_ptr.dtype.element_ty), mask=inside)
        if dx_ptr is not None:
            tl.store(dx_ptr + at, dy * gate, mask=inside)
    if sums_ptr is not None:
        to = sums_ptr + tl.program_id(0).to(tl.int64) * (2 * width) + c
        tl.store(to, tl.sum(sum_transform, axis=0), mask=c < width)
        tl.store(to + width, tl.sum(sum_gate, axis=0), mask=c < width)
    if most_ptr is not None:
        tl.store(most_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.max(most))


@triton.jit
def counted(
    x_ptr, bias_ptr, scale_ptr, count_ptr, to_ptr, sums_ptr, rows, width, row, column,
    STRIP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Write x of any strides plus the bias, times the scale, rounded; also sum a strip of rows of x.

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
        if scale_ptr is not None:
            x *= tl.load(scale_ptr)
        tl.store(to_ptr + r * width + c[None, :], x.to(to_ptr.dtype.element_ty), mask=inside)
    if sums_ptr is not None:
        tl.store(sums_ptr + tl.program_id(0).to(tl.int64) * width + c, tl.sum(total, axis=0), mask=c < width)


def launch_counted(
    x: Tensor,
    count: Tensor | None,
    to: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    sums: Tensor | None = None,
) -> None:
    """Write x to `to`; see `counted`."""
    grid, constants = strips(*x.shape)
    _triton.launch(counted, grid, x, bias, scale, count, to, sums, *x.shape, *x.stride(), **constants)


class Saved(NamedTuple):
    """Tensors that a forward pass saves for the backward pass."""

    operands: Tensor
    """inputs of the layers and of the projection, [layers (+ 1), N, W]; without the first if that is x itself"""
    pre: Tensor
    """results of `saved` for the layers, [layers, N, 2W] ([0, N, 2W] if not needed)"""


def allocate(a: Any) -> Saved:
    """Allocate the tensors to save."""
    x, dtype, number, layers = a.x, _triton.operand_dtype(a.precision), products_of(a), len(a.weights) * a.save
    of_x = dtype == torch.float32 and x.is_contiguous() and a.count is None and number > 0
    return Saved(
        x.new_empty((number - of_x, *x.shape), dtype=dtype),
        x.new_empty(
            (layers, x.shape[0], 2 * x.shape[1]), dtype=torch.float32 if dtype == torch.float32 else torch.float16
        ),
    )


def products_of(a: Any) -> int:
    """Return the number of products."""
    return len(a.weights) + (a.projection_weight is not None)


def operand_of(i: int, a: Any, operands: Tensor) -> Tensor:
    """Return the left operand of the i-th product."""
    i -= products_of(a) - len(operands)
    return a.x if i < 0 else operands.select(0, i)


def rounded_weights(a: Any) -> tuple[list[Tensor], Tensor | None]:
    """Return the weights of the layers and of the projection as operands, contiguous."""
    dtype, projection = _triton.operand_dtype(a.precision), a.projection_weight
    rounded_projection = None if projection is None else rounded_copy(projection, dtype)
    return [rounded_copy(weight, dtype) for weight in a.weights], rounded_projection


def forward(a: Any) -> tuple[Tensor, ...]:
    """Return the result, and what backward needs. Raises ElmoFastError if memory runs out."""
    (rows, width), same = a.x.shape, a.precision == "float32"
    per_row = width * ((4 if same else 2) * (products_of(a) + 2 * len(a.weights) * a.save) + 16)
    with explained("highway", "rows", rows * per_row, per_row, rows, a.x.device):
        (weights, projection), saved, y = rounded_weights(a), allocate(a), a.x
        if len(saved.operands) == products_of(a) > 0:
            launch_counted(y, a.count, saved.operands.select(0, 0))
        grid, constants = strips(rows, width)
        high, wide = constants["BR"], constants["BC"]
        for i, (weight, bias) in enumerate(zip(weights, a.biases, strict=True)):
            operand, pre = operand_of(i, a, saved.operands), saved.pre.select(0, i) if a.save else None
            if same and pre is not None:
                product = torch.mm(operand, weight.t(), out=pre)
            else:
                product = _triton.matmul(operand, weight.t(), torch.float32)
            to = operand_of(i + 1, a, saved.operands) if i + 1 < products_of(a) else None
            carry = y
            if same and to is not None:
                y, to = to, None
            elif to is None or i + 1 < len(weights):
                y = y.new_empty(rows, width)
            _triton.launch(
                mix, (_triton.cdiv(rows, high), grid[1]), product, carry, bias.contiguous(), a.count,
                None if y is carry else y, to, pre, rows, width, *carry.stride(), BR=high, BC=wide,
            )  # fmt: skip
        if projection is not None:
            y = _triton.matmul(operand_of(len(weights), a, saved.operands), projection.t(), torch.float32)
            if a.projection_bias is not None or a.count is not None:
                bias = None if a.projection_bias is None else a.projection_bias.contiguous()
                launch_counted(y, a.count, y, bias=bias)
        elif not weights:
            y = y.new_empty(rows, width)
            launch_counted(a.x, a.count, y)
    return y, *saved


def unscaled(product: Tensor, scale: Tensor | None) -> Tensor:
    """Divide a product of scaled gradients by their scale, in place."""
    return product if scale is None else product.mul_(scale.select(0, 1))


def backward(a: Any) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    """Compute the gradients of x, the weights, the biases and the projection; of size 0 if not needed."""
    (weights, projection), (rows, width) = rounded_weights(a), a.grad.shape
    d_weights, d_biases = list[Tensor](), list[Tensor]()
    d_x, d_projection, d_bias = (a.grad.new_empty(0) for _ in range(3))
    scale = scale_of([a.grad], LIFT, a.count) if a.precision == "float16" and products_of(a) else None
    # The incoming gradient is a product times that scale's inverse, plus what a gate carried.
    dy, of_dy, carried = a.grad, None, None
    if projection is not None:
        d = a.grad.new_empty(rows, width, dtype=projection.dtype)
        sums = a.grad.new_empty(strips(rows, width)[0][0], width) if a.need_weights else None
        launch_counted(a.grad, a.count, d, scale=scale, sums=sums)
        if sums is not None:
            operand = operand_of(len(weights), a, a.operands)
            d_projection, d_bias = unscaled(_triton.matmul(d.t(), operand, torch.float32), scale), sums.sum(0)
        if weights or a.need_x:
            dy, of_dy = _triton.matmul(d, projection, torch.float32), scale
    for i in reversed(range(len(weights))):
        operand, need_x = operand_of(i, a, a.operands), i > 0 or a.need_x
        d, carried, sums, scale = unmixed(a, i, dy, carried, of_dy, scale, operand, need_x)
        if a.need_weights:
            d_weights.insert(0, unscaled(_triton.matmul(d.t(), operand, torch.float32), scale))
            d_biases.insert(0, sums.sum(0))
        if need_x:
            dy, of_dy = _triton.matmul(d, weights[i], torch.float32), scale
    if a.need_x and not products_of(a):
        d_x = torch.empty_like(a.x, memory_format=torch.contiguous_format)
        launch_counted(a.grad, a.count, d_x)
    elif a.need_x:
        d_x = unscaled(dy, of_dy) if carried is None else carried
        if carried is not None:
            d_x = carried.add_(dy) if of_dy is None else carried.addcmul_(dy, of_dy.select(0, 1))
    return d_x, d_weights, d_biases, d_projection, d_bias


def unmixed(
    a: Any,
    i: int,
    dy: Tensor,
    carried: Tensor | None,
    of_dy: Tensor | None,
    guess: Tensor | None,
    x: Tensor,
    need_x: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Compute the gradients of a layer's products, as operands like x, and the part of dx that the gate carries.

    Also returns the sums for the bias, and the scale of the first gradients: `guess` (None: unscaled) or, if float16
    would lose digits with that, a new one.
    """
    rows, width = x.shape
    grid, constants = strips(rows, width)
    d, d_x = x.new_empty(rows, 2 * width), dy.new_empty(rows, width) if need_x else None
    sums = dy.new_empty(grid[0] if a.need_weights else 0, 2 * width)
    most = None if guess is None else dy.new_empty(grid[0] * grid[1])

    def launch(scale: Tensor | None, unless: Tensor | None, *results: Tensor | None) -> None:
        _triton.launch(
            unmix, grid, dy, carried, of_dy, scale, unless, x, a.pre.select(0, i), a.count, d, *results,
            rows, width, *dy.stride(), **constants,
        )  # fmt: skip

    launch(guess, None, d_x, sums if a.need_weights else None, most)
    if most is None:
        return d, d_x, sums, None
    scale = fitting(most, LIFT, guess)
    launch(scale, guess, None, None, None)
    return d, d_x, sums, scale


def run(a: HighwayArguments) -> Tensor:
    """Run elmo_fast.ops.highway."""
    return _forward_op(*a, a.needs_backward())[0]


_triton.define(
    "highway_backward(Tensor grad, Tensor x, Tensor operands, Tensor pre, Tensor[] weights, Tensor? projection_weight, "
    "Tensor? count, str precision, bool need_x, bool need_weights) -> (Tensor x, Tensor[] weights, Tensor[] biases, "
    "Tensor projection_weight, Tensor projection_bias)",
    backward,
)
_forward_op = _triton.define(
    "highway(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? projection_weight, Tensor? projection_bias, "
    "Tensor? count, str precision, bool save) -> (Tensor y, Tensor operands, Tensor pre)",
    forward,
    lambda a: (result(a), *allocate(a)),
    BACKWARD,
)
