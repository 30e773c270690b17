"""scalar_mix in Triton: each layer read once for all mixes, with dropout; float32 arithmetic, also on 16-bit layers.

All kernels are bound by memory: the floor is the bytes of the layers, the mixes and their gradients. Loads in flight
hide its latency: a block has 4 * LANES elements of every layer, 16 bytes of 16-bit numbers per thread and load. Layers
come as four pointers, None if there are fewer.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._triton import explained
from elmo_fast.ops.scalar_mix.op import ScalarMixArguments
from elmo_fast.ops.scalar_mix.reference import LANES, threshold

# Limits of one launch. Backward keeps a sum per element, layer and mix in registers.
LAYERS, MIXES, BACKWARD_MIXES = 4, 4, 2
# Eight blocks for each of 132 multiprocessors: as many as run at once, few enough for one block to add their results.
PROGRAMS = 1024
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def kept(seed_ptr, threshold, block, mix, MP: tl.constexpr, LANES: tl.constexpr):
    """Return [MP, LANES] int32: bit j is set if dropout keeps element (4 * block + j) * LANES + lane of a mix.

    Philox gives four numbers at a time; so far apart each of them serves a vector of neighbours (see reference.py).
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
def add_layer(y, x_ptr, i, inside, factor_ptr, of_mix, m_inside, statistics_ptr, layer: tl.constexpr, L: tl.constexpr):
    """Return y [MP, LANES] + factor[m, l] * x_l, or y alone if there is no such layer."""
    if x_ptr is not None:
        x = elements(x_ptr, i, inside, statistics_ptr, layer, L)
        y += tl.load(factor_ptr + of_mix * L + layer, mask=m_inside, other=0.0)[:, None] * x[None, :]
    return y


@triton.jit
def mix(
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
    """Merge mean and squared deviations of the previous `number` elements with those of a tile (Chan et al. 1979).

    The tile's own are computed about its float32 mean, and corrected for that mean's rounding. Squared deviations are
    sums.
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
def merge_moments(partial_ptr, statistics_ptr, programs, eps, L: tl.constexpr, BLOCK: tl.constexpr):
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
    """Add one layer's share g * x_l to total, and store its gradient if dx_ptr is given."""
    if x_ptr is not None:
        if SUMS or sums_ptr is not None:
            x = elements(x_ptr, i, inside, statistics_ptr, layer, L)
        if SUMS:
            total += g * x[None, :]
        if dx_ptr is not None:
            factor = tl.load(factor_ptr + of_mix * L + layer, mask=m_inside, other=0.0)
            d = tl.sum(factor[:, None] * g, axis=0)
            if sums_ptr is not None:
                # Through the mean and the variance, to the elements that they are computed from.
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
def unmix(
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


def four(tensors: Sequence[Tensor | None], first: int) -> list[Tensor | None]:
    """Return tensors first..first+3, with None for missing ones."""
    some = list(tensors[first : first + LAYERS])
    return some + [None] * (LAYERS - len(some))


def _contiguous(a: Any) -> Any:
    counted = None if a.counted is None else a.counted.contiguous()
    return a._replace(layers=[x.contiguous() for x in a.layers], factors=a.factors.contiguous(), counted=counted)


def statistics(a: Any) -> Tensor:
    """Compute [3, L] float64: mean, 1 / sqrt(variance + eps), number of counted elements. Reads every layer once."""
    layers = a.layers
    number, width = len(layers), layers[0].shape[-1]
    positions = layers[0].numel() // max(1, width)
    columns = _triton.ceil_power_of_two(width, 16, 512)
    rows = 2048 // columns
    tiles = _triton.cdiv(positions, rows) * _triton.cdiv(width, columns)
    programs = min(tiles, PROGRAMS)
    partial = layers[0].new_empty(2 * number + 1, programs, dtype=torch.float64)
    for first in range(0, number, LAYERS):
        _triton.launch(
            moments, (programs,), *four(layers, first), a.counted, partial, positions, width, tiles,
            FIRST=first, L=number, ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
    results = layers[0].new_empty(3, number, dtype=torch.float64)
    _triton.launch(merge_moments, (number,), partial, results, programs, a.eps, L=number, BLOCK=PROGRAMS)
    return results


def forward(a: Any) -> tuple[Tensor, Tensor]:
    """Compute the mixes, and the statistics ([0] without a layer norm); factors are [M, L] float32, of any strides."""
    a = _contiguous(a)
    layers, n, number, mixes = a.layers, a.layers[0].numel(), len(a.layers), a.factors.shape[0]
    rows = layers[0].shape[0] if layers[0].dim() > 1 else 1
    size = mixes * n * layers[0].itemsize
    with explained("scalar_mix", "sentences", size, size // max(1, rows), rows, layers[0].device):
        y = layers[0].new_empty(mixes, *layers[0].shape)
        # More layers than a kernel takes: intermediate results stay in float32.
        rest = number > LAYERS and y.dtype != torch.float32
        partial = torch.empty_like(y, dtype=torch.float32) if rest else y
    stats = statistics(a) if a.layer_norm else layers[0].new_empty(0, dtype=torch.float64)
    for first in range(0, number, LAYERS):
        last = first + LAYERS >= number
        for first_mix in range(0, mixes, MIXES):
            _triton.launch(
                mix, (_triton.cdiv(n, (4 * LANES)),),
                *four(layers, first), a.factors, stats if a.layer_norm else None, partial if first else None,
                a.seed if last else None, *_dropout(a), y if last else partial, n, first_mix, mixes,
                FIRST=first, L=number, MP=_triton.ceil_power_of_two(mixes, 1, MIXES), LANES=LANES,
            )  # fmt: skip
    return y, stats


def _dropout(a: Any) -> tuple[int, float]:
    """Return threshold and scale, as the kernels take them."""
    return threshold(a.dropout), 1 / (1 - a.dropout)


def backward(a: Any) -> tuple[list[Tensor], Tensor]:
    """Compute the gradients of the layers (none if not needed) and of the factors ([0] if not needed)."""
    a = _contiguous(a)._replace(grad=a.grad.contiguous())
    number, mixes = len(a.layers), a.factors.shape[0]
    fused = a.need_layers and a.need_factors and not a.layer_norm
    new = torch.empty_like if mixes else torch.zeros_like  # without mixes no kernel writes them
    d_layers = [new(layer) for layer in a.layers] if a.need_layers else []
    sums = None
    if a.need_factors or a.layer_norm:
        programs = min(_triton.cdiv(a.layers[0].numel(), (4 * LANES)), PROGRAMS)
        partial = a.factors.new_empty(programs, mixes, number + 1)
        passes(a, d_layers if fused else [], None, partial)
        sums = partial.sum(0, dtype=torch.float64)
    if a.need_layers and not fused:
        passes(a, d_layers, sums, None)
    if sums is None or not a.need_factors:
        return d_layers, a.factors.new_empty(0)
    return d_layers, sums.narrow(1, 0, number).to(a.factors.dtype)


def passes(a: Any, d_layers: list[Tensor], sums: Tensor | None, partial: Tensor | None) -> None:
    """Run one pass over gradients and layers for every four layers and two mixes: sums, gradients or both."""
    layers, number, mixes, n = a.layers, len(a.layers), a.factors.shape[0], a.layers[0].numel()
    blocks = _triton.cdiv(n, (4 * LANES))
    # More mixes than a kernel takes: intermediate results stay in float32.
    rest = a.factors.new_empty(LAYERS, n) if d_layers and mixes > BACKWARD_MIXES else None
    for first in range(0, number, LAYERS):
        for first_mix in range(0, mixes, BACKWARD_MIXES):
            last = first_mix + BACKWARD_MIXES >= mixes
            to = four(d_layers, first)
            if rest is not None and not last:
                to = [None if d is None else rest.select(0, k) for k, d in enumerate(to)]
            _triton.launch(
                unmix, (min(blocks, PROGRAMS),),
                a.grad, *four(layers, first), *to, rest if first_mix else None, a.factors, a.counted,
                a.statistics if a.layer_norm else None, sums, a.seed, *_dropout(a), partial,
                n, max(1, layers[0].shape[-1]), blocks, first_mix, mixes,
                FIRST=first, L=number, SUMS=partial is not None,
                MP=_triton.ceil_power_of_two(mixes, 1, BACKWARD_MIXES), LANES=LANES,
            )  # fmt: skip


def unsupported(device: torch.device, dtype: torch.dtype, precision: str) -> str | None:
    """Explain in one sentence why the kernels cannot serve these, or return None.

    Unlike for other Triton backends, layers may be 16-bit: nothing is multiplied by tensor cores.
    """
    if dtype not in _DTYPES:
        name = str(dtype).removeprefix("torch.")
        return (
            _triton.unsupported(device, torch.float32, precision)
            or f"this Triton kernel takes layers in float32, float16 or bfloat16, not {name}"
        )
    if dtype == torch.bfloat16:
        precision = "bfloat16"
    return _triton.unsupported(device, torch.float32, precision)


def run(a: ScalarMixArguments) -> Tensor:
    factors = a.gammas.float().unsqueeze(1) * torch.softmax(a.scalars.float(), dim=1)
    return _forward_op(a.layers, factors, a.statistics_mask, a.seed, a.layer_norm, a.eps, a.dropout)[0]


def _fake(a: Any) -> tuple[Tensor, Tensor]:
    first = a.layers[0]
    shape = (3, len(a.layers)) if a.layer_norm else (0,)
    return first.new_empty(a.factors.shape[0], *first.shape), first.new_empty(shape, dtype=torch.float64)


_triton.define(
    "scalar_mix_backward(Tensor grad, Tensor[] layers, Tensor factors, Tensor? counted, Tensor? seed, "
    "Tensor statistics, bool layer_norm, float dropout, bool need_layers, bool need_factors) "
    "-> (Tensor[] layers, Tensor factors)",
    backward,
)
_forward_op = _triton.define(
    "scalar_mix(Tensor[] layers, Tensor factors, Tensor? counted, Tensor? seed, bool layer_norm, float eps, "
    "float dropout) -> (Tensor mixes, Tensor statistics)",
    forward,
    _fake,
    Backward(),
)
