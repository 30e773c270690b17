"""highway on the GPU: what is allocated, which tiles, what is launched in which order."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import strips
from elmo_fast.ops._triton import Tiles, explained
from elmo_fast.ops._weights import rounded_copy
from elmo_fast.ops.highway import kernels

MULTIPROCESSORS = 132


# Twice the columns are computed. Largest first: a larger tile reads its operands less often.
HALF = (
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 64, 64, 8, 3),
    Tiles(64, 64, 64, 4, 3),
    Tiles(64, 32, 64, 4, 4),
    Tiles(64, 16, 128, 4, 4),
)
FULL = (Tiles(64, 64, 32, 8, 3), Tiles(32, 32, 32, 4, 3), Tiles(16, 16, 32, 4, 3))


def tiles(rows: int, width: int, dtype: torch.dtype) -> Tiles:
    """The first whose blocks keep four fifths of 132 multiprocessors busy in every wave, else the smallest."""
    choices = FULL if dtype == torch.float32 else HALF
    for tile in choices:
        blocks = _triton.cdiv(rows, tile.rows) * _triton.cdiv(width, tile.columns)
        if blocks >= 0.8 * MULTIPROCESSORS * _triton.cdiv(blocks, MULTIPROCESSORS):
            return tile
    return choices[-1]


class Saved(NamedTuple):
    """What a forward pass leaves: operands of the first product ([0] where x itself is) and of the others; and the
    transforms' pre-activations beside the folded gates, [layers, N, 2W] (see kernels.py; [0] unless to be saved)."""

    first: Tensor
    rest: Tensor
    pre: Tensor


def allocate(a: Any) -> tuple[Saved, Tensor]:
    """Uninitialised memory for a forward pass, and for the float32 inputs of layers 1 and up where operands are not.

    Raises ElmoFastError where there is not enough.
    """
    x, layers, dtype, (rows, width) = a.x, len(a.weights), _triton.operand_dtype(a.precision), a.x.shape
    same = dtype == torch.float32
    in_place = same and x.is_contiguous() and a.count is None
    inner, projects = max(0, layers - 1), a.projection_weight is not None
    sizes = (0 if in_place else 1, inner + (projects and layers > 0), 0 if same else inner, layers if a.save else 0)
    kept = torch.float32 if same else torch.float16
    per_row = width * ((sizes[0] + sizes[1]) * dtype.itemsize + 4 * sizes[2] + 2 * kept.itemsize * sizes[3])
    with explained("highway", "rows", rows * per_row, per_row, rows, x.device):
        saved = Saved(
            x.new_empty((rows, width) if sizes[0] else (0,), dtype=dtype),
            x.new_empty((sizes[1], rows, width), dtype=dtype),
            x.new_empty((sizes[3], rows, 2 * width), dtype=kept),
        )
        return saved, x.new_empty((sizes[2], rows, width))


def input_operand(layer: int, x: Tensor, saved: Any) -> Tensor:
    """The input of a layer (or of the projection, after the last), as the product's operand.

    saved: a `Saved`, or a backward op's arguments, which have its fields.
    """
    if layer == 0:
        return saved.first if saved.first.dim() == 2 else x
    return saved.rest.select(0, layer - 1)


def operands(a: Any) -> tuple[list[Tensor], Tensor | None, torch.dtype]:
    """The weights of the layers and of the projection as operands, contiguous, and their dtype."""
    dtype, projection = _triton.operand_dtype(a.precision), a.projection_weight
    kept = None if projection is None else rounded_copy(projection, dtype)
    return [rounded_copy(weight, dtype) for weight in a.weights], kept, dtype


def forward(a: Any) -> tuple[Tensor, ...]:
    """The result, and what backward needs."""
    weights, projection, dtype = operands(a)
    x, count, layers, (rows, width) = a.x, a.count, len(weights), a.x.shape
    saved, carried = allocate(a)
    if saved.first.dim() == 2:
        operand(x, count, saved.first)
    y = x.new_empty(rows, width) if projection is None else None
    if not layers and y is not None:
        operand(x, count, y)
    for i in range(layers):
        ends = i == layers - 1 and projection is None
        passes = None if ends else saved.rest.select(0, i)
        out = y if ends else passes if dtype == torch.float32 else carried.select(0, i) if i < layers - 1 else None
        product = input_operand(i, x, saved)
        carry = x if i == 0 else product if dtype == torch.float32 else carried.select(0, i - 1)
        t = tiles(rows, width, dtype)
        _triton.launch(
            kernels.layer, (_triton.cdiv(rows, t.rows) * _triton.cdiv(width, t.columns),),
            product, carry.contiguous(), weights[i], a.biases[i].contiguous(), count,
            out, None if dtype == torch.float32 else passes, saved.pre.select(0, i) if a.save else None,
            rows, width,
            BM=t.rows, BN=t.columns, BK=t.depth, PRECISION=_triton.input_precision(dtype, x.device), **t.options,
        )  # fmt: skip
    if projection is not None:
        y = project(input_operand(layers, x, saved), projection, a.projection_bias, count)
    assert y is not None
    return y, *saved


def project(x: Tensor, weight: Tensor, bias: Tensor | None, count: Tensor | None) -> Tensor:
    """x [N, W] · weight [D, W]^T + bias in float32, zeros from `count` on."""
    y = _triton.matmul(x, weight.t(), torch.float32)
    if bias is not None or count is not None:
        grid, constants = strips(*y.shape)
        rows = constants["BR"]
        _triton.launch(
            kernels.finish, (_triton.cdiv(y.shape[0], rows), grid[1]),
            y, None if bias is None else bias.contiguous(), count, *y.shape, BR=rows, BC=constants["BC"],
        )  # fmt: skip
    return y


def operand(
    x: Tensor, count: Tensor | None, to: Tensor, scale: Tensor | None = None, sums: Tensor | None = None
) -> None:
    """Writes x into `to`: rounded, scaled, zeros from `count` on; and sums over strips of rows into `sums`."""
    grid, constants = strips(*x.shape)
    _triton.launch(kernels.operand, grid, x, scale, count, to, sums, *x.shape, *x.stride(), **constants)
