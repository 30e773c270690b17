"""The inputs' half of the pre-activations, where cuBLAS has no product that stores it in 16 bits (docs/gpu.md)."""

import triton
import triton.language as tl

from elmo_fast.ops.projected_lstm.kernels_order import clipped


@triton.jit
def inputs(
    x, weight, out, rows, width, columns, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """out [R, rows, columns] float16 = x [R, rows, width] · weight [R, columns, width]^T, accumulated in float32.

    What float16 cannot hold becomes its largest number, for which every gate is saturated; NaN stays. Blocks that
    follow each other share their columns of `weight`. Floor: 2·rows·columns·width FLOP; out, the most bytes, once.
    """
    direction = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    x += (direction * rows + row)[:, None] * width
    weight += (direction * columns + column)[None, :] * width
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, width, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + k[None, :], mask=(row < rows)[:, None] & (k < width)[None, :], other=0.0)
        b = tl.load(weight + k[:, None], mask=(k < width)[:, None] & (column < columns)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    at = (direction * rows + row)[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out + at, clipped(acc, 65504.0).to(tl.float16), mask=inside)
