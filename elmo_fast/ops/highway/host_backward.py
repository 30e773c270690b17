"""highway's gradients on the GPU: one kernel per layer for everything element-wise, plain products for the rest."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import fitting, scale_of, strips
from elmo_fast.ops.highway import kernels
from elmo_fast.ops.highway.host import input_operand, operand, operands

# The largest gradient that arrives is scaled to 2^LIFT. Those of the layers' products keep its scale (`fitting`) while
# their largest is less than 2^9 times as small, as behind gates open to 0.99, and less than 2^6 times as large.
LIFT = 9


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
    scaled = dtype == torch.float16 and (layers or projection is not None)
    scale = scale_of([a.grad], LIFT, count) if scaled else None
    if projection is not None:
        dy, d_projection, d_bias = unproject(a, input_operand(layers, x, a), projection, scale)
    for i in reversed(range(layers)):
        product, wanted = input_operand(i, x, a), i > 0 or a.need_x
        d, carried, sums, scale = unmix(dy, scale, product, a.pre.select(0, i), count, wanted, a.need_weights)
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


def unproject(a: Any, x: Tensor, weight: Tensor, scale: Tensor | None) -> tuple[Arriving, Tensor, Tensor]:
    """The gradient that arrives at the projection's input x, and those of its weight and bias."""
    grad, dtype, (rows, width) = a.grad, weight.dtype, a.grad.shape
    sums = grad.new_empty(strips(rows, width)[0][0], width) if a.need_weights else None
    d = torch.empty(rows, width, dtype=dtype, device=grad.device)
    operand(grad, a.count, d, scale, sums)
    dx = Arriving(_triton.matmul(d, weight, torch.float32), None, scale)
    if sums is None:
        return dx, grad.new_empty(0), grad.new_empty(0)
    return dx, unscaled(_triton.matmul(d.t(), x, torch.float32), scale), sums.sum(0)


def unmix(
    dy: Arriving, guess: Tensor | None, x: Tensor, pre: Tensor, count: Tensor | None, need_x: bool, need_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Gradients of a layer's products, as operands like x; the part of dx that the gate carries; sums for the bias; and
    the scale of the first: `guess` (None: none) or, where float16 would lose digits with that, another."""
    rows, width = x.shape
    grid, constants = strips(rows, width)
    d = x.new_empty(rows, 2 * width)
    carried = dy.product.new_empty(rows, width) if need_x else None
    sums = dy.product.new_empty(grid[0] if need_bias else 0, 2 * width)
    most = None if guess is None else sums.new_empty(grid[0] * grid[1])

    def launch(scale: Tensor | None, unless: Tensor | None, *results: Tensor | None) -> None:
        _triton.launch(
            kernels.unmix, grid, *dy, scale, unless, x, pre, count, d, *results,
            rows, width, *dy.product.stride(), **constants,
        )  # fmt: skip

    launch(guess, None, carried, sums if need_bias else None, most)
    if guess is None or most is None:
        return d, carried, sums, None
    scale = fitting(most, LIFT, guess)
    launch(scale, guess, None, None, None)
    return d, carried, sums, scale
