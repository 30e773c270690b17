"""The highway kernels: one for a layer, one for its gradient, and three small ones around the plain products."""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

import triton
import triton.language as tl

from elmo_fast.ops._kernels import counted_rows, finite_size, plus_product


@triton.jit
def layer(
    operand_ptr, x_ptr, weight_ptr, bias_ptr, count_ptr, y_ptr, next_ptr, pre_ptr, rows, width,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # A tile of y: the products for its transforms and for its gates share every tile of x, and nothing but y (and what
    # backward needs) leaves the chip. Bound by arithmetic: 4 W^2 FLOP a row against some 16 W bytes.
    tiles = tl.cdiv(width, BN)
    # Neighbouring programs share rows, so that a wave reads few rows of x and the whole weight, which L2 holds.
    first, column = tl.program_id(0) // tiles * BM, tl.program_id(0) % tiles * BN
    # Offsets within the tile fit 32 bits; where it begins may not.
    start = first.to(tl.int64) * width
    r = tl.arange(0, BM)
    n = counted_rows(count_ptr, rows)
    r_counts = first + r < n
    # One product for both, a column of each in turn: of two with the same rows Triton would give each warp few rows of
    # every column. A thread has both of a column in its registers.
    pair = tl.arange(0, 2 * BN)
    c = column + pair // 2
    x_at = operand_ptr + start + r[:, None] * width
    w_at = weight_ptr + (pair % 2 * width + c).to(tl.int64)[None, :] * width
    both = tl.zeros((BM, 2 * BN), tl.float32)
    for k in range(0, tl.where(first < n, width, 0), BK):
        kk = k + tl.arange(0, BK)
        x = tl.load(x_at + kk[None, :], mask=r_counts[:, None] & (kk < width)[None, :], other=0.0)
        w = tl.load(w_at + kk[:, None], mask=(kk < width)[:, None] & (c < width)[None, :], other=0.0)
        both = plus_product(both, x, w, PRECISION)
    transform, gate = tl.split(tl.reshape(both, (BM, BN, 2)))
    pieces(transform, gate, x_ptr, bias_ptr, y_ptr, next_ptr, pre_ptr, first, column, n, rows, width, BM, BN)


@triton.jit
def pieces(
    transform, gate, x_ptr, bias_ptr, y_ptr, next_ptr, pre_ptr, first, column, n, rows, width,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """mix, 32 columns after the other: x, y and their addresses for a whole tile would not fit the registers."""
    if BN > 32:
        halves: tl.constexpr = (BM, 2, BN // 2)
        t0, t1 = tl.split(tl.permute(tl.reshape(transform, halves), (0, 2, 1)))
        g0, g1 = tl.split(tl.permute(tl.reshape(gate, halves), (0, 2, 1)))
        half: tl.constexpr = BN // 2
        pieces(t0, g0, x_ptr, bias_ptr, y_ptr, next_ptr, pre_ptr, first, column, n, rows, width, BM, half)
        pieces(t1, g1, x_ptr, bias_ptr, y_ptr, next_ptr, pre_ptr, first, column + half, n, rows, width, BM, half)
    else:
        mix(transform, gate, x_ptr, bias_ptr, y_ptr, next_ptr, pre_ptr, first, column, n, rows, width, BM, BN)


@triton.jit
def mix(
    transform, gate, x_ptr, bias_ptr, y_ptr, next_ptr, pre_ptr, first, column, n, rows, width,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """What a layer does with its products, for columns from `column` on."""
    r, c = tl.arange(0, BM), tl.arange(0, BN)
    start = first.to(tl.int64) * width
    c_inside = column + c < width
    counts = (first + r < n)[:, None] & c_inside[None, :]
    transform += tl.load(bias_ptr + column + c, mask=c_inside, other=0.0)[None, :]
    gate += tl.load(bias_ptr + width + column + c, mask=c_inside, other=0.0)[None, :]
    small, closes = folded(gate), gate < 0
    inside = (first + r < rows)[:, None] & c_inside[None, :]
    if pre_ptr is not None:
        # Also of rows that do not count, but never of whole tiles of those.
        to = pre_ptr + 2 * start + column
        at = r[:, None] * (2 * width) + c[None, :]
        some = (first + r < tl.where(first < n, rows, 0))[:, None] & c_inside[None, :]
        tl.store(to + at, saved(transform, pre_ptr.dtype.element_ty), mask=some)
        tl.store(to + width + at, saved_gate(small, closes, pre_ptr.dtype.element_ty), mask=some)
    at = r[:, None] * width + c[None, :]
    gate, closed = unfolded(small, closes)
    x = tl.load(x_ptr + start + column + at, mask=counts, other=0.0)
    y = tl.fma(gate, x, closed * tl.where(transform < 0, 0.0, transform))
    y = tl.where((first + r < n)[:, None], y, 0.0)
    if y_ptr is not None:
        tl.store(y_ptr + start + column + at, y, mask=inside)
    if next_ptr is not None:
        tl.store(next_ptr + start + column + at, y.to(next_ptr.dtype.element_ty), mask=inside)


# A gate is saved as the smaller of itself and 1 - itself, times 2^16, negative where it is itself: in float16 both have
# a relative error of 2^-12 down to 1e-9. The pre-activation q in float16 would have |q| times as much; the gate as it
# is would leave nothing of 1 - gate. 2^-24 and 2^-100: a gate that is closed for good keeps its sign.
FOLD: tl.constexpr = tl.constexpr(65536.0)


@triton.jit
def folded(q):
    """The smaller of sigmoid(q) and 1 - sigmoid(q), with all its digits: no exponential overflows."""
    small = tl.exp(-tl.abs(q))
    return small / (1 + small)


@triton.jit
def unfolded(small, closes):
    """The gate and 1 - the gate."""
    return tl.where(closes, small, 1 - small), tl.where(closes, 1 - small, small)


@triton.jit
def saved_gate(small, closes, dtype: tl.constexpr):
    least: tl.constexpr = 2.0**-24 if dtype == tl.float16 else 2.0**-100
    small *= FOLD
    small = tl.where(small < least, least, small)
    return tl.where(closes, -small, small).to(dtype)


@triton.jit
def saved(p, dtype: tl.constexpr):
    """p as backward wants it; float16 ends at 65504, and is then off by as much as p exceeds it. NaN stays NaN."""
    if dtype == tl.float16:
        p = tl.where(p > 65504.0, 65504.0, tl.where(p < -65504.0, -65504.0, p))
    return p.to(dtype)


@triton.jit
def upstream(product_ptr, carried_ptr, scale_ptr, r, c, row, column, width, counts):
    """A tile of the gradient that arrives: a product (scaled, where float16 needed that) and what a gate carried."""
    r = r.to(tl.int64)[:, None]
    dy = tl.load(product_ptr + r * row + c.to(tl.int64)[None, :] * column, mask=counts, other=0.0)
    if scale_ptr is not None:
        dy *= tl.load(scale_ptr + 1)
    if carried_ptr is not None:
        dy += tl.load(carried_ptr + r * width + c[None, :], mask=counts, other=0.0)
    return dy


@triton.jit
def product_gradients(dy, x_ptr, pre_ptr, r, c, width, counts):
    """A tile of gates and of the gradients of both products."""
    r = r.to(tl.int64)[:, None]
    pre = pre_ptr + r * (2 * width) + c[None, :]
    x = tl.load(x_ptr + r * width + c[None, :], mask=counts, other=0.0).to(tl.float32)
    p = tl.load(pre, mask=counts, other=0.0).to(tl.float32)
    small = tl.load(pre + width, mask=counts, other=0.0).to(tl.float32)
    gate, closed = unfolded(tl.abs(small) / FOLD, small < 0)
    d_gate = dy * (x - tl.where(p < 0, 0.0, p)) * gate * closed
    return gate, tl.where(p <= 0, 0.0, dy * closed), d_gate


@triton.jit
def unmix(
    product_ptr, carried_ptr, from_scale_ptr, to_scale_ptr, unless_ptr, x_ptr, pre_ptr, count_ptr,
    d_ptr, dx_ptr, sums_ptr, most_ptr, rows, width, row, column,
    STRIP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    # dy -> gradients of the products [N, 2W] as operands, the part of dx that the gate carries; of a strip of rows the
    # sums for the bias and the largest of those gradients. Bound by memory: about 22 W bytes a row in 16 bit (dy, x,
    # pre, d, dx). With unless_ptr it does nothing where that scale is the one asked for.
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
        at = r.to(tl.int64)[:, None] * width + c[None, :]
        pre_at = r.to(tl.int64)[:, None] * (2 * width) + c[None, :]
        dy = upstream(product_ptr, carried_ptr, from_scale_ptr, r, c, row, column, width, counts)
        gate, d_transform, d_gate = product_gradients(dy, x_ptr, pre_ptr, r, c, width, counts)
        sum_transform += d_transform
        sum_gate += d_gate
        most = tl.maximum(most, tl.maximum(finite_size(d_transform), finite_size(d_gate)))
        tl.store(d_ptr + pre_at, (d_transform * scale).to(d_ptr.dtype.element_ty), mask=inside)
        tl.store(d_ptr + pre_at + width, (d_gate * scale).to(d_ptr.dtype.element_ty), mask=inside)
        if dx_ptr is not None:
            tl.store(dx_ptr + at, dy * gate, mask=inside)
    if sums_ptr is not None:
        to = sums_ptr + tl.program_id(0).to(tl.int64) * (2 * width) + c
        tl.store(to, tl.sum(sum_transform, axis=0), mask=c < width)
        tl.store(to + width, tl.sum(sum_gate, axis=0), mask=c < width)
    if most_ptr is not None:
        tl.store(most_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.max(most))


@triton.jit
def operand(
    x_ptr, scale_ptr, count_ptr, to_ptr, sums_ptr, rows, width, row, column,
    STRIP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    # Rows of any strides as the operand of a product: rounded, scaled, zero from the counted rows on. Bound by memory.
    first, c = tl.program_id(0) * STRIP, tl.program_id(1) * BC + tl.arange(0, BC)
    n = counted_rows(count_ptr, rows)
    total = tl.zeros((BR, BC), tl.float32)
    scale = 1.0
    if scale_ptr is not None:
        scale = tl.load(scale_ptr)
    for step in range(0, STRIP, BR):
        r = first + step + tl.arange(0, BR)
        inside = (r < rows)[:, None] & (c < width)[None, :]
        x = upstream(x_ptr, None, None, r, c, row, column, width, (r < n)[:, None] & inside)
        total += x
        at = r.to(tl.int64)[:, None] * width + c[None, :]
        tl.store(to_ptr + at, (x * scale).to(to_ptr.dtype.element_ty), mask=inside)
    if sums_ptr is not None:
        tl.store(sums_ptr + tl.program_id(0).to(tl.int64) * width + c, tl.sum(total, axis=0), mask=c < width)


@triton.jit
def finish(y_ptr, bias_ptr, count_ptr, rows, width, BR: tl.constexpr, BC: tl.constexpr):
    # The projection's bias, and zeros from the counted rows on, in place. Bound by memory.
    r, c = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < width)[None, :]
    counts = (r < counted_rows(count_ptr, rows))[:, None] & inside
    at = y_ptr + r.to(tl.int64)[:, None] * width + c[None, :]
    y = tl.load(at, mask=counts, other=0.0)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + c, mask=c < width, other=0.0)[None, :]
    tl.store(at, tl.where(counts, y, 0.0), mask=inside)
