"""The scalar_mix kernels: statistics, mixes, gradients; each reads a layer once, up to four layers side by side.

All are bound by memory: the floor is the bytes of the layers, the mixes and their gradients. What hides its latency is
loads in flight: a block has 4 * LANES elements of every layer, 16 bytes of 16-bit numbers per thread and load. Layers
come as four pointers, None where there are fewer.
"""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

import triton
import triton.language as tl


@triton.jit
def kept(seed_ptr, threshold, block, mix, MP: tl.constexpr, LANES: tl.constexpr):
    """[MP, LANES] int32: bit j says whether dropout keeps element (4 * block + j) * LANES + lane of each mix.

    Philox gives four numbers at a time; so far apart each of them serves a vector of neighbours (see dropout.py).
    """
    counter = tl.cast(block, tl.int64) * LANES + tl.arange(0, LANES)[None, :] + tl.zeros((MP, LANES), tl.int64)
    low, high = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    mix = mix.to(tl.uint32)[:, None] + low * 0
    a, b, c, d = tl.philox(tl.load(seed_ptr), low, high, mix, low * 0)
    limit = tl.cast(threshold, tl.uint32)
    bits = (a >= limit).to(tl.int32) | ((b >= limit).to(tl.int32) << 1)
    return bits | ((c >= limit).to(tl.int32) << 2) | ((d >= limit).to(tl.int32) << 3)


@triton.jit
def elements(x_ptr, i, inside, statistics_ptr, layer: tl.constexpr, L: tl.constexpr):
    """Elements of layer l in float32, normalised where there are statistics. The mean is float64 and taken off in two
    parts: its rounding would shift all elements alike."""
    x = tl.load(x_ptr + i, mask=inside, other=0.0).to(tl.float32)
    if statistics_ptr is not None:
        mean, inverse = tl.load(statistics_ptr + layer), tl.load(statistics_ptr + L + layer)
        high = mean.to(tl.float32)
        x = ((x - high) - (mean - high.to(tl.float64)).to(tl.float32)) * inverse.to(tl.float32)
        x = tl.where(inside, x, 0.0)
    return x


@triton.jit
def add_layer(y, x_ptr, i, inside, factor_ptr, of_mix, m_inside, statistics_ptr, layer: tl.constexpr, L: tl.constexpr):
    """y [MP, LANES] + factor[m, l] * x_l; y alone where there is no such layer."""
    if x_ptr is not None:
        x = elements(x_ptr, i, inside, statistics_ptr, layer, L)
        y += tl.load(factor_ptr + of_mix * L + layer, mask=m_inside, other=0.0)[:, None] * x[None, :]
    return y


@triton.jit
def forward(
    a_ptr, b_ptr, c_ptr, d_ptr, factor_ptr, statistics_ptr, begin_ptr, seed_ptr, threshold, keep_scale, y_ptr,
    n, first_mix, mixes, FIRST: tl.constexpr, L: tl.constexpr, MP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    # y[m] = begin[m] + sum of factor[m, l] * x_l over layers FIRST..FIRST+3, then dropout.
    block = tl.program_id(0)
    of_mix = first_mix + tl.arange(0, MP)
    m_inside = of_mix < mixes
    if seed_ptr is not None:
        bits = kept(seed_ptr, threshold, block, of_mix, MP, LANES)
    for j in tl.static_range(4):
        i = (tl.cast(block, tl.int64) * 4 + j) * LANES + tl.arange(0, LANES)
        inside = i < n
        to = of_mix.to(tl.int64)[:, None] * n + i[None, :]
        both = m_inside[:, None] & inside[None, :]
        y = tl.zeros((MP, LANES), tl.float32)
        if begin_ptr is not None:
            y += tl.load(begin_ptr + to, mask=both, other=0.0)
        y = add_layer(y, a_ptr, i, inside, factor_ptr, of_mix, m_inside, statistics_ptr, FIRST, L)
        y = add_layer(y, b_ptr, i, inside, factor_ptr, of_mix, m_inside, statistics_ptr, FIRST + 1, L)
        y = add_layer(y, c_ptr, i, inside, factor_ptr, of_mix, m_inside, statistics_ptr, FIRST + 2, L)
        y = add_layer(y, d_ptr, i, inside, factor_ptr, of_mix, m_inside, statistics_ptr, FIRST + 3, L)
        if seed_ptr is not None:
            y = tl.where(((bits >> j) & 1) != 0, y * keep_scale, 0.0)
        tl.store(y_ptr + to, y.to(y_ptr.dtype.element_ty), mask=both)


@triton.jit
def merged(mean, m2, x_ptr, at, inside, number, own_number):
    """Mean and sum of squared deviations of what came before (`number` elements) and of a tile (Chan et al. 1979).

    The tile's own are taken about its float32 mean, and corrected for that mean's rounding.
    """
    if x_ptr is not None:
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        some = tl.maximum(own_number, 1.0)
        near = (tl.sum(x).to(tl.float64) / some).to(tl.float32)
        off = tl.where(inside, x - near, 0.0)
        rest = tl.sum(off).to(tl.float64)
        delta = near.to(tl.float64) + rest / some - mean
        m2 += tl.sum(off * off).to(tl.float64) - rest * rest / some
        m2 += delta * delta * number * (own_number / tl.maximum(number + own_number, 1.0))
        mean += delta * (own_number / tl.maximum(number + own_number, 1.0))
    return mean, m2


@triton.jit
def moments(
    a_ptr, b_ptr, c_ptr, d_ptr, counted_ptr, partial_ptr, positions, width, tiles, FIRST: tl.constexpr, L: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # partial [2L + 1, programs] float64: number of elements, means, sums of squared deviations of this program's tiles.
    across = tl.cdiv(width, COLUMNS)
    number = tl.zeros((), tl.float64)
    a, a2, b, b2, c, c2, d, d2 = number, number, number, number, number, number, number, number
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        r, column = tile // across * ROWS + tl.arange(0, ROWS), tile % across * COLUMNS + tl.arange(0, COLUMNS)
        counts = r < positions
        if counted_ptr is not None:
            counts = counts & (tl.load(counted_ptr + r, mask=counts, other=0) != 0)
        inside = counts[:, None] & (column < width)[None, :]
        at = r.to(tl.int64)[:, None] * width + column[None, :]
        own = tl.sum(inside.to(tl.int32)).to(tl.float64)
        a, a2 = merged(a, a2, a_ptr, at, inside, number, own)
        b, b2 = merged(b, b2, b_ptr, at, inside, number, own)
        c, c2 = merged(c, c2, c_ptr, at, inside, number, own)
        d, d2 = merged(d, d2, d_ptr, at, inside, number, own)
        number += own
    programs = tl.num_programs(0)
    to = partial_ptr + tl.program_id(0)
    tl.store(to, number)
    tl.store(to + (1 + FIRST) * programs, a)
    tl.store(to + (1 + L + FIRST) * programs, a2)
    if b_ptr is not None:
        tl.store(to + (2 + FIRST) * programs, b)
        tl.store(to + (2 + L + FIRST) * programs, b2)
    if c_ptr is not None:
        tl.store(to + (3 + FIRST) * programs, c)
        tl.store(to + (3 + L + FIRST) * programs, c2)
    if d_ptr is not None:
        tl.store(to + (4 + FIRST) * programs, d)
        tl.store(to + (4 + L + FIRST) * programs, d2)


@triton.jit
def statistics(partial_ptr, statistics_ptr, programs, eps, L: tl.constexpr, BLOCK: tl.constexpr):
    # statistics [3, L] float64: mean, 1 / sqrt(variance + eps), number of counted elements; NaN where none counts.
    layer, i = tl.program_id(0), tl.arange(0, BLOCK)
    inside = i < programs
    number = tl.load(partial_ptr + i, mask=inside, other=0.0)
    means = tl.load(partial_ptr + (1 + layer) * programs + i, mask=inside, other=0.0)
    squares = tl.load(partial_ptr + (1 + L + layer) * programs + i, mask=inside, other=0.0)
    total = tl.sum(number)
    some = tl.maximum(total, 1.0)
    mean = tl.sum(number * means) / some
    variance = tl.sum(squares + number * (means - mean) * (means - mean)) / some
    tl.store(statistics_ptr + layer, tl.where(total > 0, mean, float("nan")))
    tl.store(statistics_ptr + L + layer, 1.0 / tl.sqrt(variance + eps))
    tl.store(statistics_ptr + 2 * L + layer, total)


@triton.jit
def back(
    total, g, x_ptr, dx_ptr, begin_ptr, i, inside, counts, factor_ptr, of_mix, m_inside, statistics_ptr, sums_ptr, n,
    layer: tl.constexpr, K: tl.constexpr, L: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """One layer's share: total + g * x_l, and its gradient where dx_ptr is given."""
    if x_ptr is not None:
        if SUMS or sums_ptr is not None:
            x = elements(x_ptr, i, inside, statistics_ptr, layer, L)
        if SUMS:
            total += g * x[None, :]
        if dx_ptr is not None:
            factor = tl.load(factor_ptr + of_mix * L + layer, mask=m_inside, other=0.0)
            d = tl.sum(factor[:, None] * g, axis=0)
            if sums_ptr is not None:
                # Through the mean and the variance, to the elements that they are of.
                of_sums = sums_ptr + of_mix * (L + 1)
                number = tl.load(statistics_ptr + 2 * L)
                slope = tl.sum(factor.to(tl.float64) * tl.load(of_sums + layer, mask=m_inside, other=0.0)) / number
                shift = tl.sum(factor.to(tl.float64) * tl.load(of_sums + L, mask=m_inside, other=0.0)) / number
                d -= tl.where(counts, shift.to(tl.float32) + slope.to(tl.float32) * x, 0.0)
                d *= tl.load(statistics_ptr + L + layer).to(tl.float32)
            if begin_ptr is not None:
                d += tl.load(begin_ptr + tl.cast(n, tl.int64) * K + i, mask=inside, other=0.0)
            tl.store(dx_ptr + i, d.to(dx_ptr.dtype.element_ty), mask=inside)
    return total


@triton.jit
def backward(
    g_ptr, a_ptr, b_ptr, c_ptr, d_ptr, da_ptr, db_ptr, dc_ptr, dd_ptr, begin_ptr, factor_ptr, counted_ptr,
    statistics_ptr, sums_ptr, seed_ptr, threshold, keep_scale, partial_ptr, n, width, blocks, first_mix, mixes,
    FIRST: tl.constexpr, L: tl.constexpr, SUMS: tl.constexpr, MP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    # SUMS: partial [programs, M, L + 1] of g * x_l and of g alone. dx_l = begin_l + sum of factor * g, and,
    # given the sums of a layer norm, less what flows through mean and variance. Both in one pass without a layer norm.
    of_mix = first_mix + tl.arange(0, MP)
    m_inside = of_mix < mixes
    a = tl.zeros((MP, LANES), tl.float32)
    b, c, d, whole = a, a, a, a
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        start = tl.cast(block, tl.int64) * (4 * LANES)
        within, position = (start % width).to(tl.int32), start // width
        if seed_ptr is not None:
            bits = kept(seed_ptr, threshold, block, of_mix, MP, LANES)
        for j in tl.static_range(4):
            offset = j * LANES + tl.arange(0, LANES)
            i = start + offset
            inside = i < n
            counts = inside
            if sums_ptr is not None and counted_ptr is not None:
                at = position + (within + offset) // width
                counts = tl.load(counted_ptr + at, mask=inside, other=0) != 0
            g = tl.load(
                g_ptr + of_mix.to(tl.int64)[:, None] * n + i[None, :],
                mask=m_inside[:, None] & inside[None, :], other=0.0,
            ).to(tl.float32)  # fmt: skip
            if seed_ptr is not None:
                g = tl.where(((bits >> j) & 1) != 0, g * keep_scale, 0.0)
            if SUMS:
                whole += g
            a = back(a, g, a_ptr, da_ptr, begin_ptr, i, inside, counts, factor_ptr, of_mix, m_inside, statistics_ptr,
                     sums_ptr, n, FIRST, 0, L, SUMS)  # fmt: skip
            b = back(b, g, b_ptr, db_ptr, begin_ptr, i, inside, counts, factor_ptr, of_mix, m_inside, statistics_ptr,
                     sums_ptr, n, FIRST + 1, 1, L, SUMS)  # fmt: skip
            c = back(c, g, c_ptr, dc_ptr, begin_ptr, i, inside, counts, factor_ptr, of_mix, m_inside, statistics_ptr,
                     sums_ptr, n, FIRST + 2, 2, L, SUMS)  # fmt: skip
            d = back(d, g, d_ptr, dd_ptr, begin_ptr, i, inside, counts, factor_ptr, of_mix, m_inside, statistics_ptr,
                     sums_ptr, n, FIRST + 3, 3, L, SUMS)  # fmt: skip
    if SUMS:
        to = partial_ptr + (tl.program_id(0) * mixes + of_mix) * (L + 1)
        tl.store(to + FIRST, tl.sum(a, axis=1), mask=m_inside)
        if b_ptr is not None:
            tl.store(to + FIRST + 1, tl.sum(b, axis=1), mask=m_inside)
        if c_ptr is not None:
            tl.store(to + FIRST + 2, tl.sum(c, axis=1), mask=m_inside)
        if d_ptr is not None:
            tl.store(to + FIRST + 3, tl.sum(d, axis=1), mask=m_inside)
        if FIRST == 0:
            tl.store(to + L, tl.sum(whole, axis=1), mask=m_inside)
