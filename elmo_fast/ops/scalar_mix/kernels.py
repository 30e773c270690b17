"""scalar_mix in Triton: each layer read once for all mixes, with dropout; float32 arithmetic, also on 16-bit layers.

All kernels are bound by memory: the floor is the bytes of the layers, the mixes and their gradients. Loads in flight
hide its latency: a block has 4 * LANES elements of every layer, 16 bytes of 16-bit numbers per thread and load.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._sampling import LANES, threshold
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, implement, launch

# Mixes that a program computes together. Backward keeps a sum per element, layer and mix in registers, so that it has
# limits of both.
MIXES, BACKWARD_MIXES, BACKWARD_LAYERS = 4, 2, 4
# Eight blocks for each of 132 multiprocessors: as many as run at once, few enough for one block to add their results.
PROGRAMS = 1024


@triton.jit
def kept(seed_ptr, threshold, block, mix, MP: tl.constexpr, LANES: tl.constexpr):
    """Return [MP, LANES] int32: bit j is set if dropout keeps element (4 * block + j) * LANES + lane of a mix.

    Philox gives four numbers at a time; so far apart each of them serves a vector of neighbours (see `keep_mask`).
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
    """Load elements of layer l in float32, normalised if there are statistics.

    The mean is float64 and subtracted in two parts: its rounding would shift all elements alike.
    """
    x = tl.load(x_ptr + i, mask=inside, other=0.0).to(tl.float32)
    if statistics_ptr is not None:
        mean, inverse = tl.load(statistics_ptr + layer), tl.load(statistics_ptr + L + layer)
        high = mean.to(tl.float32)
        x = ((x - high) - (mean - high.to(tl.float64)).to(tl.float32)) * inverse.to(tl.float32)
        x = tl.where(inside, x, 0.0)
    return x


@triton.jit
def scalar_mix_forward_mix_kernel(
    layers, factor_ptr, statistics_ptr, seed_ptr, threshold, keep_scale, y_ptr, n, first_mix, mixes,
    L: tl.constexpr, MP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    # y[m] = sum of factor[m, l] * x_l, then dropout.
    block, of_mix = tl.program_id(0), first_mix + tl.arange(0, MP)
    m_inside = of_mix < mixes
    if seed_ptr is not None:
        bits = kept(seed_ptr, threshold, block, of_mix, MP, LANES)
    for j in tl.static_range(4):
        i = (tl.cast(block, tl.int64) * 4 + j) * LANES + tl.arange(0, LANES)
        inside = i < n
        to = of_mix.to(tl.int64)[:, None] * n + i[None, :]
        both = m_inside[:, None] & inside[None, :]
        y = tl.zeros((MP, LANES), tl.float32)
        for layer in tl.static_range(L):
            x = elements(layers[layer], i, inside, statistics_ptr, layer, L)
            y += tl.load(factor_ptr + of_mix * L + layer, mask=m_inside, other=0.0)[:, None] * x[None, :]
        if seed_ptr is not None:
            y = tl.where(((bits >> j) & 1) != 0, y * keep_scale, 0.0)
        tl.store(y_ptr + to, y.to(y_ptr.dtype.element_ty), mask=both)


@triton.jit
def scalar_mix_forward_moments_kernel(
    layers, counted_ptr, partial_ptr, positions, width, tiles, L: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    # partial [3, L, programs] float64: mean, sum of squared deviations and number of elements of this program's tiles.
    layer, across = tl.program_id(1), tl.cdiv(width, COLUMNS)
    x_ptr = layers[0]
    for other in tl.static_range(1, L):
        x_ptr = tl.where(layer == other, layers[other], x_ptr)
    number = tl.zeros((), tl.float64)
    mean, m2 = number, number
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        r, column = tile // across * ROWS + tl.arange(0, ROWS), tile % across * COLUMNS + tl.arange(0, COLUMNS)
        counts = r < positions
        if counted_ptr is not None:
            counts = counts & (tl.load(counted_ptr + r, mask=counts, other=0) != 0)
        inside = counts[:, None] & (column < width)[None, :]
        own = tl.sum(inside.to(tl.int32)).to(tl.float64)
        x = tl.load(x_ptr + r.to(tl.int64)[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
        # The tile's own are computed about its float32 mean, corrected for that mean's rounding, and merged with those
        # of the previous tiles (Chan et al. 1979).
        some = tl.maximum(own, 1.0)
        near = (tl.sum(x).to(tl.float64) / some).to(tl.float32)
        off = tl.where(inside, x - near, 0.0)
        rest = tl.sum(off).to(tl.float64)
        delta, share = near.to(tl.float64) + rest / some - mean, own / tl.maximum(number + own, 1.0)
        m2 += tl.sum(off * off).to(tl.float64) - rest * rest / some + delta * delta * number * share
        mean += delta * share
        number += own
    to, step = partial_ptr + layer * tl.num_programs(0) + tl.program_id(0), L * tl.num_programs(0)
    tl.store(to, mean)
    tl.store(to + step, m2)
    tl.store(to + 2 * step, number)


@triton.jit
def scalar_mix_forward_merge_moments_kernel(
    partial_ptr, statistics_ptr, programs, eps, L: tl.constexpr, BLOCK: tl.constexpr
):
    # statistics [3, L] float64: mean, 1 / sqrt(variance + eps), number of counted elements; NaN where none counts.
    layer, i = tl.program_id(0), tl.arange(0, BLOCK)
    inside, at = i < programs, partial_ptr + layer * programs + i
    means = tl.load(at, mask=inside, other=0.0)
    squares = tl.load(at + L * programs, mask=inside, other=0.0)
    number = tl.load(at + 2 * L * programs, mask=inside, other=0.0)
    total = tl.sum(number)
    some = tl.maximum(total, 1.0)
    mean = tl.sum(number * means) / some
    variance = tl.sum(squares + number * (means - mean) * (means - mean)) / some
    tl.store(statistics_ptr + layer, tl.where(total > 0, mean, float("nan")))
    tl.store(statistics_ptr + L + layer, 1.0 / tl.sqrt(variance + eps))
    tl.store(statistics_ptr + 2 * L + layer, total)


@triton.jit
def scalar_mix_backward_gradients_kernel(
    g_ptr, layers, gradients, begins, factor_ptr, counted_ptr, statistics_ptr, sums_ptr, seed_ptr, threshold,
    keep_scale, partial_ptr, n, width, blocks, first_mix, mixes,
    FIRST: tl.constexpr, L: tl.constexpr, MP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    # Of layers FIRST.. and their mixes: partial [programs, M, L + 1], sums of g * x_l and of g alone. gradients, dx_l =
    # begins_l + sum of factor * g and, given the sums of a layer norm, less what flows through mean and variance. Both
    # in one pass without a layer norm.
    of_mix = first_mix + tl.arange(0, MP)
    m_inside = of_mix < mixes
    whole = tl.zeros((MP, LANES), tl.float32)
    totals = (whole,) * len(layers)
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
                counts = tl.load(counted_ptr + position + (within + offset) // width, mask=inside, other=0) != 0
            at = g_ptr + of_mix.to(tl.int64)[:, None] * n + i[None, :]
            g = tl.load(at, mask=m_inside[:, None] & inside[None, :], other=0.0).to(tl.float32)
            if seed_ptr is not None:
                g = tl.where(((bits >> j) & 1) != 0, g * keep_scale, 0.0)
            if partial_ptr is not None:
                whole += g
                before = totals
                totals = ()
            for layer in tl.static_range(len(layers)):
                if partial_ptr is not None or sums_ptr is not None:
                    x = elements(layers[layer], i, inside, statistics_ptr, FIRST + layer, L)
                if partial_ptr is not None:
                    totals = totals + (before[layer] + g * x[None, :],)  # noqa: RUF005 (Triton has no starred tuples)
                if gradients is not None:
                    factor = tl.load(factor_ptr + of_mix * L + FIRST + layer, mask=m_inside, other=0.0)
                    d = tl.sum(factor[:, None] * g, axis=0)
                    if sums_ptr is not None:
                        # Through the mean and the variance, to the elements that they are computed from.
                        of_sums = sums_ptr + of_mix * (L + 1)
                        number = tl.load(statistics_ptr + 2 * L)
                        slope = tl.load(of_sums + FIRST + layer, mask=m_inside, other=0.0)
                        slope = tl.sum(factor.to(tl.float64) * slope) / number
                        shift = tl.load(of_sums + L, mask=m_inside, other=0.0)
                        shift = tl.sum(factor.to(tl.float64) * shift) / number
                        d -= tl.where(counts, shift.to(tl.float32) + slope.to(tl.float32) * x, 0.0)
                        d *= tl.load(statistics_ptr + L + FIRST + layer).to(tl.float32)
                    if begins is not None:
                        d += tl.load(begins[layer] + i, mask=inside, other=0.0)
                    tl.store(gradients[layer] + i, d.to(gradients[layer].dtype.element_ty), mask=inside)
    if partial_ptr is not None:
        to = partial_ptr + (tl.program_id(0) * mixes + of_mix) * (L + 1)
        for layer in tl.static_range(len(layers)):
            tl.store(to + FIRST + layer, tl.sum(totals[layer], axis=1), mask=m_inside)
        if FIRST == 0:
            tl.store(to + L, tl.sum(whole, axis=1), mask=m_inside)


def _contiguous(a: Any) -> Any:
    counted = None if a.counted is None else a.counted.contiguous()
    return a._replace(
        layers=[x.contiguous() for x in a.layers], coefficients=a.coefficients.contiguous(), counted=counted
    )


def statistics(a: Any) -> Tensor:
    """Compute [3, L] float64: mean, 1 / sqrt(variance + eps), number of counted elements. Reads every layer once."""
    layers, number, width = a.layers, len(a.layers), a.layers[0].shape[-1]
    positions = layers[0].numel() // max(1, width)
    columns = ceil_power_of_two(width, 16, 512)
    rows = 2048 // columns
    tiles = cdiv(positions, rows) * cdiv(width, columns)
    programs = min(tiles, PROGRAMS)
    partial, results = (layers[0].new_empty(3, number, *more, dtype=torch.float64) for more in ((programs,), ()))
    launch(
        scalar_mix_forward_moments_kernel, (programs, number),
        tuple(layers), a.counted, partial, positions, width, tiles,
        L=number, ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
    launch(
        scalar_mix_forward_merge_moments_kernel, (number,), partial, results, programs, a.eps, L=number, BLOCK=PROGRAMS
    )
    return results


def forward(a: Any) -> tuple[Tensor, list[Tensor]]:
    """Compute the mixes, and with a layer norm the statistics; coefficients are [M, L] float32, of any strides."""
    a = _contiguous(a)
    first, mixes, n = a.layers[0], a.coefficients.shape[0], a.layers[0].numel()
    y = first.new_empty(mixes, *first.shape)
    stats = statistics(a) if a.layer_norm else None
    for first_mix in range(0, mixes, MIXES):
        launch(
            scalar_mix_forward_mix_kernel, (cdiv(n, 4 * LANES),),
            tuple(a.layers), a.coefficients, stats, a.seed,
            *_dropout(a), y, n, first_mix, mixes,
            L=len(a.layers), MP=ceil_power_of_two(mixes, 1, MIXES), LANES=LANES,
            num_warps=ceil_power_of_two(len(a.layers), 4, 8),
        )  # fmt: skip
    return y, [] if stats is None else [stats]


def _dropout(a: Any) -> tuple[int, float]:
    """Return threshold and scale, as the kernels take them."""
    return threshold(a.dropout), 1 / (1 - a.dropout)


def backward(a: Any) -> tuple[list[Tensor], Tensor]:
    """Compute the gradients of the layers (none if not needed) and of the coefficients ([0] if not needed)."""
    a = _contiguous(a)._replace(grad=a.grad.contiguous())
    number, mixes = len(a.layers), a.coefficients.shape[0]
    fused = a.need_layers and a.need_coefficients and not a.layer_norm
    new = torch.empty_like if mixes else torch.zeros_like  # without mixes no kernel writes them
    d_layers = [new(layer) for layer in a.layers] if a.need_layers else []
    sums = None
    if a.need_coefficients or a.layer_norm:
        programs = min(cdiv(a.layers[0].numel(), 4 * LANES), PROGRAMS)
        partial = a.coefficients.new_empty(programs, mixes, number + 1)
        passes(a, d_layers if fused else [], None, partial)
        sums = partial.sum(0, dtype=torch.float64)
    if a.need_layers and not fused:
        passes(a, d_layers, sums, None)
    if sums is None or not a.need_coefficients:
        return d_layers, a.coefficients.new_empty(0)
    return d_layers, sums.narrow(1, 0, number).to(a.coefficients.dtype)


def passes(a: Any, d_layers: list[Tensor], sums: Tensor | None, partial: Tensor | None) -> None:
    """Run a pass over gradients and layers, for a few mixes and layers at a time: sums, gradients or both."""
    number, mixes, n = len(a.layers), a.coefficients.shape[0], a.layers[0].numel()
    blocks = cdiv(n, 4 * LANES)
    # More mixes than a kernel takes: intermediate results stay in float32.
    rest = a.coefficients.new_empty(number, n).unbind(0) if d_layers and mixes > BACKWARD_MIXES else None
    for first_mix in range(0, mixes, BACKWARD_MIXES):
        to = d_layers if rest is None or first_mix + BACKWARD_MIXES >= mixes else rest
        for first in range(0, number, BACKWARD_LAYERS):
            some = slice(first, first + BACKWARD_LAYERS)
            launch(
                scalar_mix_backward_gradients_kernel, (min(blocks, PROGRAMS),),
                a.grad, tuple(a.layers[some]), tuple(to[some]) or None, rest[some] if rest and first_mix else None,
                a.coefficients, a.counted, a.saved[0] if a.layer_norm else None, sums, a.seed, *_dropout(a), partial,
                n, max(1, a.layers[0].shape[-1]), blocks, first_mix, mixes, FIRST=first, L=number,
                MP=ceil_power_of_two(mixes, 1, BACKWARD_MIXES), LANES=LANES,
            )  # fmt: skip


def _saved(a: Any) -> list[Tensor]:
    return [a.layers[0].new_empty(3, len(a.layers), dtype=torch.float64)] if a.layer_norm else []


implement("scalar_mix", forward, _saved)
implement("scalar_mix_backward", backward)
