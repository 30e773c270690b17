"""char_cnn in Triton: one forward kernel for all widths, which keeps only the largest window; then three backward.

Filters are packed: one row of `depth` operands per filter, [width][E] and zeros after; every width begins at a multiple
of BLOCK rows (tiles of filters belong to one width). The table of characters has two more rows: NaN, for ids outside
the table, so that a wrong id shows and reads nothing it should not, and zeros, for where nothing is read.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._kernels import counted_rows, segment_sum, tanh
from elmo_fast.ops._triton import cdiv, ceil_power_of_two, implement, launch

PARTS = 16  # number of parts of the words over which weight gradients are summed in parallel


@triton.jit
def _filters(tile, BLOCK: tl.constexpr, WIDTHS: tl.constexpr, NUMBERS: tl.constexpr):
    """Return width, first filter within it, its number of filters and first feature, of a tile of BLOCK packed rows."""
    width, begin, number, feature = 0, 0, 0, 0
    tiles, features = 0, 0
    for i in tl.static_range(len(WIDTHS)):
        here = tile >= tiles
        width = tl.where(here, WIDTHS[i], width)
        begin = tl.where(here, (tile - tiles) * BLOCK, begin)
        number = tl.where(here, NUMBERS[i], number)
        feature = tl.where(here, features, feature)
        tiles += (NUMBERS[i] + BLOCK - 1) // BLOCK
        features += NUMBERS[i]
    return width, begin, number, feature


@triton.jit
def _tails(ids, row_stride, column_stride, row, live, slots, ROWS: tl.constexpr):
    """Return per row the slot where its trailing run of equal ids begins, [ROWS]; -1 if the row is not live."""
    base = ids + row.to(tl.int64)[:, None] * row_stride
    end = tl.zeros((1, 1), dtype=tl.int64) + (slots - 1)
    last = tl.load(base + end * column_stride, mask=live[:, None], other=0)
    tail = tl.where(live, 0, -1)
    for start in range(0, slots, 32):
        slot = start + tl.arange(0, 32)
        mask = live[:, None] & (slot < slots)[None, :]
        x = tl.load(base + slot.to(tl.int64)[None, :] * column_stride, mask=mask, other=0)
        tail = tl.maximum(tail, tl.max(tl.where(mask & (x != last), (slot + 1)[None, :], -1), axis=1))
    return tail


@triton.jit
def _characters(ids, base, slot, column_stride, mask, characters):
    """Return the table's rows for the ids at `slot` (within the row, where mask is set) of rows beginning at `base`."""
    x = tl.load(ids + base + slot.to(tl.int64) * column_stride, mask=mask, other=0)
    return tl.where(mask, tl.where((x >= 0) & (x < characters), x, characters), characters + 1).to(tl.int32)


@triton.jit
def _windows(
    table, ids, base, column_stride, live, t, start, width, slots, characters,
    E: tl.constexpr, STEP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Load operands start .. start + STEP of window t of each row, [BM, STEP]; zeros past the width.

    One id is loaded for all its E numbers; the hints state what the reshape hides: the numbers are contiguous.
    """
    RUN: tl.constexpr = min(E, STEP)
    slot = start // E + tl.arange(0, STEP // RUN)
    mask = live[:, None] & ((slot < width) & (t + slot < slots))[None, :]
    row = _characters(ids, base, (t + slot)[None, :], column_stride, mask, characters)
    at = tl.broadcast_to((row * E + start % E)[:, :, None], (BM, STEP // RUN, RUN)).reshape(BM, STEP)
    at += (tl.arange(0, STEP) % RUN)[None, :]
    return tl.load(table + tl.max_contiguous(tl.multiple_of(at, (1, RUN)), (1, RUN)))


@triton.jit
def char_cnn_forward_convolve_kernel(
    ids, row_stride, column_stride, count, table, filters, biases, features, winners, rows, slots, characters, total,
    tiles,
    WIDTHS: tl.constexpr, NUMBERS: tl.constexpr, E: tl.constexpr, DEPTH: tl.constexpr, STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TANH: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Compute BM words' features for BN filters of one width: the largest of all windows that differ, and its index.

    ids [N, C]; table [characters + 2, E], filters [tiles · BN, DEPTH]: operands; biases [F]; features [N, F] float32;
    winners [N, F] int16. The filters stay in shared memory; a step gathers one window of every word and multiplies. All
    windows inside a word's trailing run are equal: the first of them is the last that is computed. Floor:
    2·sum(width·E·n) FLOP per window and word; the gather moves 2·width·E bytes from L1 for BN columns.
    """
    tile = tl.program_id(0) % tiles
    tile = tiles - 1 - tile  # the widest filters, the last in ELMo's order, start first
    row = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    live = row < counted_rows(count, rows)
    width, begin, number, feature = _filters(tile, BN, WIDTHS, NUMBERS)
    tail = _tails(ids, row_stride, column_stride, row, live, slots, BM)
    stop = tl.minimum(tl.max(tail, axis=0) + 1, slots - width + 1)
    base = row.to(tl.int64)[:, None] * row_stride
    filters += (tile * BN + tl.arange(0, BN)).to(tl.int64)[None, :] * DEPTH + tl.arange(0, STEP)[:, None]
    best = tl.full((BM, BN), float("-inf"), dtype=tl.float32)
    where = tl.zeros((BM, BN), dtype=tl.int32)
    operand = tl.load(filters)
    following = _windows(table, ids, base, column_stride, live, 0, 0, width, slots, characters, E, STEP, BM)
    for t in range(0, stop):
        if STEP == DEPTH:
            # The next window comes from L1 while this one is multiplied.
            x = following
            following = _windows(table, ids, base, column_stride, live, t + 1, 0, width, slots, characters, E, STEP, BM)
            y = tl.dot(x, operand, input_precision="ieee")
        else:
            y = tl.zeros((BM, BN), dtype=tl.float32)
            for start in range(0, width * E, STEP):
                x = _windows(table, ids, base, column_stride, live, t, start, width, slots, characters, E, STEP, BM)
                y = tl.dot(x, tl.load(filters + start), y, input_precision="ieee")
        # A comparison with NaN is false, hence the second test: a NaN wins and stays. The first of equals stays.
        larger = (y > best) | (y != y)
        best = tl.where(larger, y, best)
        if SAVE:
            where = tl.where(larger, t, where)
    column = begin + tl.arange(0, BN)
    known = column < number
    y = tl.where(live[:, None], best, 0.0) + tl.load(biases + feature + column, mask=known, other=0.0)[None, :]
    y = tanh(y) if TANH else tl.where(y < 0, 0.0, y)
    at = row.to(tl.int64)[:, None] * total + (feature + column)[None, :]
    store = (row < rows)[:, None] & known[None, :]
    tl.store(features + at, tl.where(live[:, None], y, 0.0), mask=store)
    if SAVE:
        tl.store(winners + at, where.to(tl.int16), mask=store)


@triton.jit
def _slope(grad, features, winners, at, mask, TANH: tl.constexpr):
    """Return the gradient before the activation, and the first slot of the window that won."""
    g = tl.load(grad + at, mask=mask, other=0.0)
    y = tl.load(features + at, mask=mask, other=0.0)
    g = g * (1 - y * y) if TANH else tl.where(y <= 0, 0.0, g)
    return g, tl.load(winners + at, mask=mask, other=0).to(tl.int32)


@triton.jit
def char_cnn_backward_weight_sums_kernel(
    grad, features, winners, ids, row_stride, column_stride, count, table, sums, bias_sums, rows, slots, characters,
    total, tiles, parts,
    WIDTHS: tl.constexpr, NUMBERS: tl.constexpr, E: tl.constexpr, DEPTH: tl.constexpr, SLOTS: tl.constexpr,
    BN: tl.constexpr, TANH: tl.constexpr,
):  # fmt: skip
    """Sum weight gradients over a part of the words: sums [parts, tiles · BN, DEPTH], bias_sums [parts, tiles · BN].

    A word adds its gradient times the one window that won, for BN filters side by side; dead ones add zeros, which lie
    in one row of the table. Floor: N·sum(width·E·n) multiply-adds in float32, as many numbers gathered from L1.
    """
    tile, part = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    limit = counted_rows(count, rows)
    each = tl.cdiv(limit, parts)
    width, begin, number, feature = _filters(tile, BN, WIDTHS, NUMBERS)
    column = begin + tl.arange(0, BN)
    known = column < number
    slot, e = tl.program_id(1) * SLOTS + tl.arange(0, SLOTS), tl.arange(0, E)
    sum = tl.zeros((BN, SLOTS, E), dtype=tl.float32)
    bias = tl.zeros((BN,), dtype=tl.float32)
    for row in range(part * each, tl.minimum(limit, (part + 1) * each)):
        at = tl.full((1,), row, dtype=tl.int64) * total + feature + column
        g, first = _slope(grad, features, winners, at, known, TANH)
        first = tl.minimum(tl.maximum(first, 0), slots - width)
        needed = (g != 0)[:, None] & (slot < width)[None, :]
        base = tl.full((1, 1), row, dtype=tl.int64) * row_stride
        character = _characters(ids, base, first[:, None] + slot[None, :], column_stride, needed, characters)
        x = tl.load(table + (character * E)[:, :, None] + e[None, None, :])
        sum += g[:, None, None] * x.to(tl.float32)
        bias += g
    place = (part.to(tl.int64) * tiles + tile) * BN + tl.arange(0, BN)
    at = sums + place[:, None, None] * DEPTH + (slot * E)[None, :, None] + e[None, None, :]
    tl.store(at, sum, mask=(slot * E < DEPTH)[None, :, None])
    if tl.program_id(1) == 0:
        tl.store(bias_sums + place, bias)


@triton.jit
def char_cnn_backward_finish_weights_kernel(
    sums, bias_sums, d_weights, d_biases, size, tiles, parts,
    WIDTHS: tl.constexpr, NUMBERS: tl.constexpr, E: tl.constexpr, DEPTH: tl.constexpr, SLOTS: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Add the parts in order, into d_weights [n, size, width] and d_biases [n] of every width."""
    width, begin, number, feature = _filters(tl.program_id(0), BN, WIDTHS, NUMBERS)
    d_weight, d_bias, features = d_weights[0], d_biases[0], 0
    for i in tl.static_range(len(WIDTHS)):
        d_weight = tl.where(feature >= features, d_weights[i], d_weight)
        d_bias = tl.where(feature >= features, d_biases[i], d_bias)
        features += NUMBERS[i]
    column = begin + tl.arange(0, BN)
    depth = tl.program_id(1) * SLOTS * E + tl.arange(0, SLOTS * E)
    sum = tl.zeros((BN, SLOTS * E), dtype=tl.float32)
    bias = tl.zeros((BN,), dtype=tl.float32)
    known = column < number
    for part in range(parts):
        place = (tl.cast(part, tl.int64) * tiles + tl.program_id(0)) * BN + tl.arange(0, BN)
        mask = known[:, None] & (depth < DEPTH)[None, :]
        sum += tl.load(sums + place[:, None] * DEPTH + depth[None, :], mask=mask, other=0.0)
        bias += tl.load(bias_sums + place, mask=known, other=0.0)
    slot, within = depth // E, depth % E
    at = column[:, None] * size * width + (within * width + slot)[None, :]
    tl.store(d_weight + at, sum, mask=known[:, None] & ((within < size) & (slot < width))[None, :])
    if tl.program_id(1) == 0:
        tl.store(d_bias + column, bias, mask=known)


@triton.jit
def char_cnn_backward_inputs_kernel(
    grad, features, winners, ids, row_stride, column_stride, count, filters, d_inputs, keys, rows, slots, characters,
    total, tiles,
    WIDTHS: tl.constexpr, NUMBERS: tl.constexpr, WIDEST: tl.constexpr, E: tl.constexpr, DEPTH: tl.constexpr,
    BR: tl.constexpr, BS: tl.constexpr, BN: tl.constexpr, TANH: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Compute d_inputs [N, C, E], the gradient of BS slots of BR words, where any computed window reaches.

    keys [N, C]: the character of such a slot, `characters` for any other, whose d_inputs stay unwritten. A filter's
    gradient stands at slot winner + j for each j < width: rows of operands that are zero elsewhere, times the filters.
    SCALED: gradients become 16-bit operands, times their own power of two for each word and tile, which is undone
    after. Floor: N·slots reached·sum(width·n)·E multiply-adds of the tensor cores, and one comparison for E of them.
    """
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    slot = tl.program_id(1) * BS + tl.arange(0, BS)
    live = row < counted_rows(count, rows)
    reach = _tails(ids, row_stride, column_stride, row, live, slots, BR) + WIDEST
    reached = live[:, None] & (slot[None, :] < tl.minimum(reach, slots)[:, None])
    any = tl.max(tl.max(reached.to(tl.int32), axis=1), axis=0)
    e = tl.arange(0, E)
    sum = tl.zeros((BR * BS, E), dtype=tl.float32)
    # Slots that no window reaches, most of a padded word, need no pass over the filters.
    for tile in range(0, tl.where(any > 0, tiles, 0)):
        width, begin, number, feature = _filters(tile, BN, WIDTHS, NUMBERS)
        column = begin + tl.arange(0, BN)
        mask = live[:, None] & (column < number)[None, :]
        at = row.to(tl.int64)[:, None] * total + (feature + column)[None, :]
        g, first = _slope(grad, features, winners, at, mask, TANH)
        undo = tl.full((BR,), 1.0, dtype=tl.float32)
        if SCALED:
            # The power of two below the largest gradient, clamped so that its inverse is a normal number: scaling is
            # exact.
            exponent = tl.max(tl.abs(g), axis=1).to(tl.int32, bitcast=True) & 0x7F800000
            exponent = tl.minimum(tl.maximum(exponent, 1 << 23), 253 << 23)
            undo = exponent.to(tl.float32, bitcast=True)
            g = g * ((254 << 23) - exponent).to(tl.float32, bitcast=True)[:, None]
        part = tl.zeros((BR * BS, E), dtype=tl.float32)
        at_filter = filters + (tile * BN + tl.arange(0, BN)).to(tl.int64)[:, None] * DEPTH + e[None, :]
        for j in range(0, width):
            there = (first + j)[:, None, :] == slot[None, :, None]
            a = tl.where(there, g[:, None, :], 0.0).reshape(BR * BS, BN)
            w = tl.load(at_filter + j * E)
            part = tl.dot(a.to(w.dtype), w, part, input_precision="ieee")
        sum += part * tl.broadcast_to(undo[:, None], (BR, BS)).reshape(BR * BS)[:, None]
    base = row.to(tl.int64)[:, None] * row_stride
    mask = reached & (slot < slots)[None, :]
    character = _characters(ids, base, slot[None, :], column_stride, mask, characters)
    place = row.to(tl.int64)[:, None] * slots + slot[None, :]
    character = tl.minimum(character, characters).to(keys.dtype.element_ty)
    tl.store(keys + place, character, mask=(row < rows)[:, None] & (slot < slots)[None, :])
    flat, written = place.reshape(BR * BS), mask.reshape(BR * BS)
    tl.store(d_inputs + flat[:, None] * E + e[None, :], sum, mask=written[:, None])


class Filters(NamedTuple):
    """Sizes of all convolutions: width and number of each; of the packed rows: E, depth, multiple of rows."""

    widths: tuple[int, ...]
    numbers: tuple[int, ...]
    size: int
    depth: int
    block: int

    def tiles(self, block: int) -> int:
        """Return the number of tiles of `block` filters of one width."""
        return sum(cdiv(number, block) for number in self.numbers)

    @property
    def constants(self) -> dict[str, Any]:
        """Return the constants that every kernel takes."""
        return {"WIDTHS": self.widths, "NUMBERS": self.numbers, "E": self.size, "DEPTH": self.depth}


def filters_of(weights: Sequence[Tensor], precision: str) -> Filters:
    """Choose the layout: K up to 256 stays whole in shared memory, float32 goes 16 at a time.

    No other code chooses it.
    """
    widths, numbers = tuple(w.shape[2] for w in weights), tuple(w.shape[0] for w in weights)
    size = ceil_power_of_two(weights[0].shape[1], 16, 2**20)
    depth = ceil_power_of_two(max(widths) * size, 16, 2**30)
    if depth > 256:
        depth = -(-max(widths) * size // 64) * 64
    return Filters(
        widths, numbers, size, depth, ceil_power_of_two(max(numbers), 16, 128 if precision != "float32" else 64)
    )


def pack(embedding: Tensor, weights: Sequence[Tensor], precision: str) -> list[Tensor]:
    """Return characters (plus a row of NaN and one of zeros) and packed filters."""
    f, dtype = filters_of(weights, precision), getattr(torch, precision)
    characters, size = embedding.shape
    table = embedding.new_zeros(characters + 2, f.size, dtype=dtype)
    table[characters].fill_(torch.nan)
    table[:characters, :size].copy_(embedding.detach())
    filters, start = embedding.new_zeros(f.tiles(f.block) * f.block, f.depth, dtype=dtype), 0
    for weight in weights:
        number, _, width = weight.shape
        part = filters[start : start + number, : width * f.size].view(number, width, f.size)
        part[:, :, :size].copy_(weight.detach().transpose(1, 2))
        start += cdiv(number, f.block) * f.block
    return [table, filters]


def allocate(a: Any) -> tuple[Tensor, Tensor]:
    """Allocate features [N, F] float32 and, if `save`, the windows that won, [N, F] int16 (else [0, F])."""
    rows, total = a.ids.shape[0], sum(weight.shape[0] for weight in a.weights)
    features = a.embedding.new_empty(rows, total)
    return features, a.embedding.new_empty(rows if a.save else 0, total, dtype=torch.int16)


def forward(a: Any) -> tuple[Tensor, list[Tensor]]:
    """Compute features [N, F] and, if `save`, the windows that won."""
    f = filters_of(a.weights, a.precision)
    (rows, slots), (features, winners) = a.ids.shape, allocate(a)
    total = features.shape[1]
    copies = a.packed if a.packed and not a.save else pack(a.embedding, a.weights, a.precision)
    (table, filters), bias = copies, torch.cat([each.detach() for each in a.biases])
    # One stage: the table is 8 KiB that every SM wants at once. Loads into registers find it in L1; the asynchronous
    # copies of more stages would read the same few lines of L2.
    tiles, high = f.tiles(f.block), 64
    launch(
        char_cnn_forward_convolve_kernel, (cdiv(rows, high) * tiles,),
        a.ids, *a.ids.stride(), a.count, table, filters, bias, features,
        winners, rows, slots, a.embedding.shape[0], total, tiles, **f.constants,
        STEP=16 if a.precision == "float32" else f.depth if f.depth <= 256 else 64, BM=high, BN=f.block,
        TANH=a.tanh, SAVE=a.save, num_warps=8, num_stages=1,
    )  # fmt: skip
    return features, [winners, table, filters] if a.save else []


def _read(a: Any) -> tuple[Any, ...]:
    """Return the arguments that both halves of a backward pass read."""
    return a.grad, a.features, a.saved[0], a.ids, *a.ids.stride(), a.count


def weight_gradients(a: Any, table: Tensor, f: Filters) -> tuple[list[Tensor], list[Tensor]]:
    """Compute the gradients of weights and biases: sums over parts of the words, then over the parts in order."""
    (rows, total), slots = a.features.shape, a.ids.shape[1]
    block, window_slots = min(32, f.block), max(1, min(f.depth, 128) // f.size)  # slots: a power of two
    tiles, parts = f.tiles(block), max(1, min(PARTS, cdiv(rows, 64)))
    d_weights = [w.new_empty(w.shape) for w in a.weights]
    d_biases = [w.new_empty(w.shape[0]) for w in a.weights]
    sums = table.new_empty(parts, tiles * block, f.depth, dtype=torch.float32)
    bias_sums = table.new_empty(parts, tiles * block, dtype=torch.float32)
    launch(
        char_cnn_backward_weight_sums_kernel, (tiles * parts, cdiv(f.depth, window_slots * f.size)),
        *_read(a), table, sums, bias_sums, rows,
        slots, table.shape[0] - 2, total, tiles, parts, **f.constants, TANH=a.tanh, SLOTS=window_slots, BN=block,
    )  # fmt: skip
    few = max(1, min(f.depth, 64) // f.size)
    launch(
        char_cnn_backward_finish_weights_kernel, (tiles, cdiv(f.depth, few * f.size)),
        sums, bias_sums, tuple(d_weights), tuple(d_biases),
        a.embedding.shape[1], tiles, parts, **f.constants, SLOTS=few, BN=block,
    )  # fmt: skip
    return d_weights, d_biases


def embedding_gradient(a: Any, filters: Tensor, f: Filters) -> Tensor:
    """Compute the gradient of the embedding: first per slot, then summed over the slots of each character."""
    (rows, total), slots = a.features.shape, a.ids.shape[1]
    characters, size = a.embedding.shape
    scaled = filters.dtype != torch.float32
    # Rows of operands: 64 fill the tensor cores. float32 takes 32, which no compiler maps to them: Triton 3.6 turns
    # a product of 64 rows into tf32 for sm_100, whatever its input_precision.
    high, wide = 4 if scaled else 2, 16
    # Radix sort passes over 8 bits of the keys at a time: two passes for the characters of any published model.
    narrow = torch.int16 if characters < 2**15 - 1 else torch.int32
    d_inputs = a.embedding.new_empty(rows * slots, f.size)
    keys = a.embedding.new_empty(rows * slots, dtype=narrow)
    launch(
        char_cnn_backward_inputs_kernel, (cdiv(rows, high), cdiv(slots, wide)), *_read(a), filters, d_inputs, keys,
        rows, slots, characters, total, f.tiles(f.block), **f.constants, TANH=a.tanh, WIDEST=max(f.widths),
        BR=high, BS=wide, BN=f.block, SCALED=scaled, num_stages=1,
    )  # fmt: skip
    gradient = segment_sum(d_inputs, keys, characters)
    return gradient if size == f.size else a.embedding.new_empty(a.embedding.shape).copy_(gradient[:, :size])


def backward(a: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return d_embedding, d_weights and d_biases; gradients that are not needed are empty."""
    a = a._replace(grad=a.grad.contiguous())
    f = filters_of(a.weights, a.precision)
    _, table, filters = a.saved
    d_weights, d_biases = weight_gradients(a, table, f) if a.need_weights else ([], [])
    d_embedding = embedding_gradient(a, filters, f) if a.need_embedding else a.embedding.new_empty(0)
    return d_embedding, d_weights, d_biases


implement("char_cnn", forward, lambda a: [allocate(a)[1], *pack(a.embedding, a.weights, a.precision)])
implement("char_cnn_backward", backward)
