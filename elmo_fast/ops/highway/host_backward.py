"""highway's gradients on the GPU: one kernel per layer for everything element-wise, plain products for the rest."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops.highway import kernels
from elmo_fast.ops.highway.host import inputs, operand, operands, scale_of, strips


class Arriving(NamedTuple):
    """A gradient [N, W] in parts: a product times scale[1] (None: times 1), and what the gates carried (None: 0)."""

    product: Tensor
    carried: Tensor | None
    scale: Tensor | None

    def joined(self) -> Tensor:
        """The gradient itself, in one of the parts' memory; nothing of the user's is written to."""
        if self.scale is not None:
            if self.carried is not None:
                return self.carried.addcmul_(self.product, self.scale.select(0, 1))
            return self.product.mul_(self.scale.select(0, 1))
        if self.carried is not None:
            return self.carried.add_(self.product)
        return self.product


def unscaled(product: Tensor, scale: Tensor | None) -> Tensor:
    return product if scale is None else product.mul_(scale.select(0, 1))


def backward(a: Any) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor, Tensor]:
    """Gradients of x, the weights, the biases and the projection; of size 0 where not asked for."""
    weights, projection, dtype = operands(a)
    x, count, layers = a.x, a.count, len(weights)
    d_weights: list[Tensor] = []
    d_biases: list[Tensor] = []
    d_x, d_projection, d_bias = x.new_empty(0), x.new_empty(0), x.new_empty(0)
    dy = Arriving(a.grad, None, None)
    if projection is not None:
        dy, d_projection, d_bias = unproject(a, inputs(layers, x, a)[0], projection)
    for i in reversed(range(layers)):
        (product, carry), pre = inputs(i, x, a), a.pre.select(0, i)
        scale = scale_of(*dy, carry, pre, count) if dtype == torch.float16 else None
        wanted = i > 0 or a.need_x
        d, carried, sums = unmix(dy, scale, carry, pre, count, dtype, wanted, a.need_weights)
        if a.need_weights:
            d_weights.insert(0, unscaled(_triton.matmul(d.t(), product, torch.float32), scale))
            d_biases.insert(0, sums.sum(0))
        if wanted:
            dy = Arriving(_triton.matmul(d, weights[i], torch.float32), carried, scale)
    if a.need_x and (layers or projection is not None):
        d_x = dy.joined()
    elif a.need_x:
        d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        operand(a.grad, count, d_x)
    return d_x, d_weights, d_biases, d_projection, d_bias


def unproject(a: Any, x: Tensor, weight: Tensor) -> tuple[Arriving, Tensor, Tensor]:
    """The gradient that arrives at the projection's input x, and those of its weight and bias."""
    grad, dtype, (rows, width) = a.grad, weight.dtype, a.grad.shape
    scale = scale_of(grad, None, None, None, None, a.count) if dtype == torch.float16 else None
    sums = grad.new_empty(strips(rows, width)[0][0], width) if a.need_weights else None
    d = torch.empty(rows, width, dtype=dtype, device=grad.device)
    operand(grad, a.count, d, scale, sums)
    dx = Arriving(_triton.matmul(d, weight, torch.float32), None, scale)
    if sums is None:
        return dx, grad.new_empty(0), grad.new_empty(0)
    return dx, unscaled(_triton.matmul(d.t(), x, torch.float32), scale), sums.sum(0)


def unmix(
    dy: Arriving, scale: Tensor | None, x: Tensor, pre: Tensor, count: Tensor | None, dtype: torch.dtype,
    need_x: bool, need_bias: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Gradients of a layer's products, as operands; the part of dx that the gate carries; sums for the bias."""
    rows, width = x.shape
    grid, constants = strips(rows, width)
    d = torch.empty(rows, 2 * width, dtype=dtype, device=x.device)
    carried = x.new_empty(rows, width) if need_x else None
    sums = x.new_empty(grid[0] if need_bias else 0, 2 * width)
    _triton.launch(
        kernels.unmix, grid,
        dy.product, dy.carried, dy.scale, scale, x, pre, count, d, carried, sums if need_bias else None,
        rows, width, *dy.product.stride(), *x.stride(), **constants,
    )  # fmt: skip
    return d, carried, sums
