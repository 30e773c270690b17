"""Triton kernels shared by several ops, and their launches. Imported only if Triton is installed."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._triton import cdiv, ceil_power_of_two, launch

_DROPOUT = tl.constexpr(0x80000000)  # _sampling.DROPOUT


@triton.jit
def after_previous():
    """Wait for the previous launches, then let the next one's blocks start; before Hopper, neither is needed.

    For kernels that are launched with `launch_pdl`, as their first statement, on every path. A block may run while the
    previous launch has not ended, and griddepcontrol.wait returns when that launch has ended and everything it wrote is
    visible here. So nothing is read or written too early if nothing precedes the wait. Earlier launches have ended too:
    the previous one could not end before its own wait returned. The next launch's blocks start once all blocks of this
    one have reached this point or ended, when none of them needs a free slot any more, and wait in turn.
    """
    if tl.target_info.cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def plus_product(total, a, b, PRECISION: tl.constexpr):
    """Add a [M, K] · b [K, N] of 16-bit or float32 operands to `total`, in float32.

    PRECISION: from `_triton.input_precision`. The K products of float32 are summed by themselves, then added to the
    total, because one chain of all additions of a long sum would round more than the tolerances allow. "tf32x3" does
    that by itself; for exact products the compiler would form one chain, which the last argument, unused otherwise,
    prevents.
    """
    if a.dtype == tl.float32 and PRECISION == "ieee":
        return total + tl.dot(a, b, input_precision="ieee", max_num_imprecise_acc=1)
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def tanh(x):
    """Compute tanh(x) to a unit in the last place.

    Near 0, where 1 - 2 / (exp(2|x|) + 1) would cancel, it is a polynomial. Source of the coefficients: Moshier, Cephes,
    tanhf. The interpreter cannot call the device's own tanh.
    """
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    far = tl.where(x < 0, -far, far)
    s = x * x
    near = tl.fma(s, tl.fma(s, -5.70498872745e-3, 2.06390887954e-2), -5.37397155531e-2)
    near = tl.fma(s, tl.fma(s, near, 1.33314422036e-1), -3.33332819422e-1)
    near = tl.fma(x * s, near, x)
    return tl.where(tl.abs(x) < 0.625, near, far)


@triton.jit
def softplus(x):
    """Compute ln(1 + e^x) to a few units in the last place, even where it is far below 1.

    The result is 0 at -infinity and infinity at infinity. ln(1 + e) is e times a polynomial, because the device's own
    logarithm has an absolute error near 1. The coefficients are those of the least relative error on 0..1, 5e-9.
    """
    e = tl.exp(-tl.abs(x))
    p = tl.fma(e, -0.0032440233, 0.0198514536)
    p = tl.fma(e, tl.fma(e, p, -0.0569595173), 0.106036536)
    p = tl.fma(e, tl.fma(e, p, -0.153055921), 0.196759388)
    p = tl.fma(e, tl.fma(e, p, -0.249541342), 0.333299637)
    p = tl.fma(e, tl.fma(e, p, -0.499999017), 1.0)
    return tl.fma(e, p, tl.where(x > 0, x, 0.0))


@triton.jit
def logistic(x):
    """Compute σ(x) = 1 / (1 + e^-x), the slope of `softplus`, with all its digits even where it is far below 1."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def _sum_of(values, order, start, stop, column, inside, width, INDIRECT: tl.constexpr, ROWS: tl.constexpr):
    """Sum the rows order[start:stop] (or start:stop themselves) of values, ROWS at a time, in a fixed order."""
    total = tl.zeros((ROWS, column.shape[0]), dtype=tl.float32)
    for at in range(start, stop, ROWS):
        place = at + tl.arange(0, ROWS)
        row = place.to(tl.int64)
        if INDIRECT:
            row = tl.load(order + place, mask=place < stop, other=0)
        mask = (place < stop)[:, None] & inside[None, :]
        total += tl.load(values + row[:, None] * width + column[None, :], mask=mask, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit
def segment_sum_whole_chunks_kernel(
    values, order, keys, partial, rows, width, CHUNK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute partial[i], the sum of chunk i (CHUNK entries of `order`), if the chunk lies in one segment.

    Other chunks are not written. values [N, D]; order, keys [N]: the rows sorted by key, and their keys. Floor: every
    row of values once.
    """
    chunk = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = chunk * CHUNK
    if start + CHUNK > rows:
        return
    if tl.load(keys + start) != tl.load(keys + start + CHUNK - 1):
        return
    inside = column < width
    total = _sum_of(values, order, start, start + CHUNK, column, inside, width, True, ROWS)
    tl.store(partial + chunk.to(tl.int64) * width + column, total, mask=inside)


@triton.jit
def segment_sum_merge_kernel(
    values, order, offsets, partial, out, width, CHUNK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute out[i], the sum of the rows order[offsets[i]:offsets[i + 1]] of values.

    It adds the sums of `segment_sum_whole_chunks_kernel` and the rows at both ends of the segment. A segment without
    rows gives 0. At most 2·CHUNK rows and N / CHUNK partial sums are added one after the other, however often one key
    occurs.
    """
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    start, stop = tl.load(offsets + segment).to(tl.int32), tl.load(offsets + segment + 1).to(tl.int32)
    first, last = tl.cdiv(start, CHUNK), stop // CHUNK
    whole = last > first
    head = tl.where(whole, first * CHUNK, stop)
    total = _sum_of(values, order, start, head, column, inside, width, True, ROWS)
    total += _sum_of(partial, order, first, tl.where(whole, last, first), column, inside, width, False, ROWS)
    total += _sum_of(values, order, tl.where(whole, last * CHUNK, stop), stop, column, inside, width, True, ROWS)
    tl.store(out + segment * width + column, total, mask=inside)


def segment_sum(values: Tensor, keys: Tensor, number: int, order: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Sum rows of `values` by key: out[i] adds the rows whose key is i, in their order; other keys are ignored.

    values: [N, D] float32, contiguous; keys: [N] int64, int32 or int16, wide enough for `number` (narrow keys sort
    faster); order: the sorted keys and their original positions, if known. Returns [number, D] float32.
    """
    rows, width = values.shape
    out = values.new_empty(number, width)
    if rows == 0 or width == 0:
        return out.zero_()
    ordered, positions = torch.sort(keys, stable=True) if order is None else order
    bounds = torch.arange(number + 1, dtype=keys.dtype, device=keys.device)
    offsets = torch.searchsorted(ordered, bounds)
    # At most 2 * chunk + rows / chunk numbers are added one after the other, fewest if both terms are equal.
    chunk = ceil_power_of_two(math.isqrt(rows), 64, 1024)
    block = ceil_power_of_two(width, 16, 128)
    columns = cdiv(width, block)
    partial = values.new_empty(max(1, rows // chunk), width)
    constants = {"CHUNK": chunk, "ROWS": 16 if block == 128 else 32, "BLOCK": block, "num_warps": 4}
    grid = (rows // chunk, columns)
    launch(segment_sum_whole_chunks_kernel, grid, values, positions, ordered, partial, rows, width, **constants)
    launch(segment_sum_merge_kernel, (number, columns), values, positions, offsets, partial, out, width, **constants)
    return out


@triton.jit
def counted_rows(count_ptr, rows):
    """Return how many of `rows` count: all, or the device's number, clamped to 0..rows."""
    if count_ptr is None:
        n = rows
    else:
        n = tl.minimum(tl.maximum(tl.load(count_ptr), 0), rows).to(tl.int32)
    return n


def strips(rows: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Return grid and constants of kernels that walk rows in strips of at least 64, 2048 elements at a time."""
    columns = ceil_power_of_two(width, 16, 256)
    at_once = 2048 // columns
    strip = max(64, at_once)
    grid = cdiv(rows, strip), cdiv(width, columns)
    return grid, {"STRIP": strip, "BR": at_once, "BC": columns}


@triton.jit(do_not_specialize=["seed", "first_row", "threshold"])
def dropout_sample_kernel(out, offset, seed, first_row, rows, width, threshold, scale, BLOCK: tl.constexpr):
    """Compute `_sampling.dropout_factors`, out [planes, rows, width]; BLOCK blocks of four numbers per program."""
    row, plane = tl.program_id(1), tl.program_id(2)
    block = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = (plane * tl.cdiv(width, 4) + block).to(tl.uint32)
    at = tl.load(offset)
    low, high = (at & 0xFFFFFFFF).to(tl.uint32), (at >> 32).to(tl.uint32) | _DROPOUT
    none = first * 0
    a, b, c, d = tl.philox(seed, first, none + (first_row + row).to(tl.uint32), none + low, none + high)
    bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * BLOCK,))  # in the order a, b, c, d
    column = tl.program_id(0) * 4 * BLOCK + tl.arange(0, 4 * BLOCK)
    value = tl.where(bits.to(tl.int64) >= threshold, scale, 0.0)
    at_row = (plane.to(tl.int64) * rows + row) * width
    tl.store(out + at_row + column, value, mask=column < width)


def launch_dropout(
    threshold: int, scale: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int]
) -> Tensor:
    """Compute `_sampling.dropout_factors` of the probability threshold / 2^32."""
    planes, rows, width = shape
    out = torch.empty(shape, dtype=torch.float32, device=offset.device)
    grid = cdiv(cdiv(width, 4), 256), rows, planes
    launch(dropout_sample_kernel, grid, out, offset, seed, first_row, rows, width, threshold, scale, BLOCK=256)
    return out
