"""Shared by the Triton backends of the losses over a vocabulary: kernels of logits, and their launches.

Rows of logits exist in registers only: sums of exponentials over tiles are merged later (Milakov and Gimelshein 2018).
Tiles are [ROWS, WORDS] of hidden [N, D] against rows of the table [S, D]: products of 16-bit (or float32) operands
accumulated in float32. Addresses are a 64-bit base per tile and 32-bit offsets within it. Imported only if Triton is
installed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import plus_product, power_of_two
from elmo_fast.ops._table_rows import table_gradient
from elmo_fast.ops._triton import (
    MOST_BLOCKS,
    Tiles,
    cdiv,
    ceil_power_of_two,
    explained,
    input_precision,
    is_small,
    launch,
    operand_dtype,
)

# Probabilities reach below float16's normal numbers (6e-5); times 2^14 they use its range, and 1 still fits.
LIFT = 14


@triton.jit
def log1p64(x):
    """Compute ln(1 + x) of a float64 to a few units in the last place; -1 gives a large negative number.

    Source: Goldberg 1991, theorem 4.
    """
    u = 1.0 + x
    exact = u == 1.0
    return tl.where(exact, x, tl.log(tl.maximum(u, 1e-300)) * x / tl.where(exact, 1.0, u - 1.0))


@triton.jit
def expm1_64(x):
    """Compute exp(x) - 1 of a float64 x <= 0 to a few units in the last place (Kahan's form)."""
    u = tl.exp(x)
    plain = (u == 1.0) | (u == 0.0)
    return tl.where(plain, tl.where(u == 0.0, -1.0, x), (u - 1.0) * x / tl.log(tl.where(plain, 2.0, u)))


@triton.jit
def log_expected(word, tries, samples, words, CORRECTION: tl.constexpr, TERM: tl.constexpr):
    """Compute ln Q of `expected_counts` as float32: in float64, or with AllenNLP's float32 rounding at every step."""
    top = tl.log((words + 1).to(tl.float64))
    if CORRECTION == "tensorflow":
        p = log1p64(1.0 / (word.to(tl.float64) + 1.0)) / top
        drawn = -expm1_64(tries.to(tl.float64) * log1p64(-p))
        return tl.log(tl.where(tries == samples, p * samples, drawn)).to(tl.float32)
    k = word.to(tl.float32)
    ratio = tl.log(tl.div_rn(k + 2.0, k + 1.0).to(tl.float64)).to(tl.float32)
    p = tl.div_rn(ratio, tl.zeros_like(ratio) + top.to(tl.float32))
    missed = tries.to(tl.float32) * log1p64(-(p.to(tl.float64))).to(tl.float32)
    drawn = 1.0 - tl.exp(missed.to(tl.float64)).to(tl.float32)
    return tl.log((drawn + TERM).to(tl.float64)).to(tl.float32)


@triton.jit
def offset_of(
    word, inside, bias, bias_step, law, samples, words, CORRECTION: tl.constexpr, TERM: tl.constexpr
):  # fmt: skip
    """Compute b of words in the table, less the term of CORRECTION.

    "noise" subtracts ln P + TERM, where `law` holds ln P [V]; "none" subtracts nothing; others subtract ln Q, where
    `law` holds the number of tries.
    """
    offset = tl.load(bias + word * bias_step, mask=inside, other=0.0)
    if CORRECTION == "noise":
        offset -= tl.load(law + word, mask=inside, other=0.0) + TERM
    elif CORRECTION != "none":
        offset -= log_expected(word, tl.load(law), samples, words, CORRECTION, TERM)
    return offset


@triton.jit
def true_logits(
    hidden, hidden_row, hidden_col, targets, targets_step, weight, weight_row, weight_col, bias, bias_step, law,
    operands, true, ids, count, samples, words, width,
    CORRECTION: tl.constexpr, TERM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Compute the target's logit from rounded values, summed in float32; NaN for a word off the table.

    Also writes hidden to `operands`. Bound by memory: 2 · 4 bytes read and 2 written per element.
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < count
    word = tl.load(targets + row * targets_step, mask=inside, other=0)
    known = (word >= 0) & (word < words)
    word = tl.minimum(tl.maximum(word, 0), words - 1).to(tl.int64)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, width, WIDTH):
        col = start + tl.arange(0, WIDTH)
        mask = inside[:, None] & (col < width)[None, :]
        h = tl.load(hidden + row[:, None] * hidden_row + col[None, :] * hidden_col, mask=mask, other=0.0)
        w = tl.load(weight + word[:, None] * weight_row + col[None, :] * weight_col, mask=mask, other=0.0)
        h = h.to(operands.dtype.element_ty)
        tl.store(operands + row[:, None] * width + col[None, :], h, mask=mask)
        total += tl.sum(h.to(tl.float32) * w.to(operands.dtype.element_ty).to(tl.float32), axis=1)
    total += offset_of(word, inside, bias, bias_step, law, samples, words, CORRECTION, TERM)
    tl.store(true + row, tl.where(known, total, float("nan")), mask=inside)
    tl.store(ids + row, word, mask=inside)


@triton.jit
def round_rows(
    weight, weight_row, weight_col, out, first, words, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Round rows first.. of a table to operands; bound by memory: 4 bytes read and 2 written per element."""
    s = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    for start in range(0, width, WIDTH):
        col = start + tl.arange(0, WIDTH)
        mask = (s < words)[:, None] & (col < width)[None, :]
        w = tl.load(weight + (first + s)[:, None] * weight_row + col[None, :] * weight_col, mask=mask, other=0.0)
        tl.store(out + s[:, None] * width + col[None, :], w.to(out.dtype.element_ty), mask=mask)


@triton.jit
def product(
    hidden, rows, first_row, first_word, count, words, width,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute one tile of hidden · rows^T; EVEN: D is a multiple of DEPTH."""
    r, s, k = tl.arange(0, ROWS), tl.arange(0, WORDS), tl.arange(0, DEPTH)
    h_at = hidden + first_row.to(tl.int64) * width + (r[:, None] * width + k[None, :])
    w_at = rows + tl.cast(first_word, tl.int64) * width + (s[None, :] * width + k[:, None])
    r_in, s_in = (first_row + r < count)[:, None], (first_word + s < words)[None, :]
    tile = tl.zeros([ROWS, WORDS], tl.float32)
    for start in range(0, width, DEPTH):
        if EVEN:
            h = tl.load(h_at, mask=r_in, other=0.0)
            w = tl.load(w_at, mask=s_in, other=0.0)
        else:
            h = tl.load(h_at, mask=r_in & (start + k < width)[None, :], other=0.0)
            w = tl.load(w_at, mask=s_in & (start + k < width)[:, None], other=0.0)
        tile = plus_product(tile, h, w, PRECISION)
        h_at += DEPTH
        w_at += DEPTH
    return tile


@triton.jit
def words_of(ids, base, s, inside):
    """Return the words of a tile's columns: looked up, or counted from `base` if the table itself is walked."""
    if ids is not None:
        return tl.load(ids + s, mask=inside, other=-1).to(tl.int32)
    return (base + s).to(tl.int32)


@triton.jit
def log_sums(
    hidden, rows, offsets, targets, ids, base, maxima, sums, count, words, width,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute, per row and tile of words, the largest logit and the sum of exp(logit - largest), without the target.

    One tile per program: a loop over tiles needs so many more registers that two programs no longer fit on a
    multiprocessor, where the exponentials and first loads of one hide behind the products of the other. Row tiles run
    fastest over the grid: programs that run at the same time read the same rows of the table from L2. The floor is 2 N
    S D operations at 790 TFLOP/s; a 128 x 128 tile reads 32 KiB of L2 for 2.1 MFLOP, 12 TB/s at that rate: L2 bounds
    it, not memory.
    """
    first_row, first = tl.program_id(0) * ROWS, tl.program_id(1) * WORDS
    tile = product(hidden, rows, first_row, first, count, words, width, ROWS, WORDS, DEPTH, EVEN, PRECISION)
    row, s = first_row + tl.arange(0, ROWS), first + tl.arange(0, WORDS)
    target = tl.load(targets + row, mask=row < count, other=-1).to(tl.int32)
    hit = target[:, None] == words_of(ids, base, s, s < words)[None, :]
    tile = tl.where(hit, float("-inf"), tile)
    # The barriers keep the assembler from loading all vectors at once: 128 registers, two programs per multiprocessor.
    tl.debug_barrier()
    tile += tl.load(offsets + s, mask=s < words, other=float("-inf"))[None, :]
    tl.debug_barrier()
    largest = tl.max(tile, axis=1)
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    place = tl.program_id(1).to(tl.int64) * count + row
    tl.store(maxima + place, largest, mask=row < count)
    tl.store(sums + place, tl.sum(tl.exp(tile - shift[:, None]), axis=1), mask=row < count)


@triton.jit
def merge(
    maxima, sums, state, true, losses, totals, count, parts,
    FIRST: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Merge the parts of a row in order, in float64, onto `state` [2, N] (largest, sum) unless FIRST.

    LAST: write losses, and totals [N, 2]: the largest logit and the log-sum-exp relative to it (near 1e6 float32 has
    sixteenths left). If the target is the largest, log1p keeps the digits of a small loss.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    largest = tl.full([ROWS], float("-inf"), tl.float64)
    total = tl.zeros([ROWS], tl.float64)
    if not FIRST:
        largest = tl.load(state + row, mask=inside, other=float("-inf"))
        total = tl.load(state + count + row, mask=inside, other=0.0)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        mask = (part < parts)[:, None] & inside[None, :]
        place = part.to(tl.int64)[:, None] * count + row[None, :]
        each = tl.load(maxima + place, mask=mask, other=float("-inf")).to(tl.float64)
        top = tl.maximum(largest, tl.max(each, axis=0))
        shift = tl.where(top == float("-inf"), 0.0, top)
        added = tl.load(sums + place, mask=mask, other=0.0).to(tl.float64) * tl.exp(each - shift[None, :])
        total = total * tl.exp(largest - shift) + tl.sum(added, axis=0)
        largest = top
    if LAST:
        t = tl.load(true + row, mask=inside, other=0.0).to(tl.float64)
        top = tl.maximum(largest, t)
        rest = total * tl.exp(largest - top)
        whole = rest + tl.exp(t - top)
        # t - top: 0, but NaN for an infinite logit.
        loss = tl.where(t >= largest, log1p64(rest) + (t - top), (largest - t) + tl.log(whole))
        tl.store(losses + row, loss.to(tl.float32), mask=inside)
        tl.store(totals + 2 * row, top.to(tl.float32), mask=inside)
        tl.store(totals + 2 * row + 1, tl.log(whole).to(tl.float32), mask=inside)
    else:
        tl.store(state + row, largest, mask=inside)
        tl.store(state + count + row, total, mask=inside)


@triton.jit
def store_gradients(
    tile, out, column_sums, first_tile, count, words, ROWS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """Store a program's tile of d(logits) as operands [N, S], and the unrounded sums over its rows (bias gradient)."""
    first_row, first = tl.program_id(0) * ROWS, tl.program_id(1) * WORDS
    row, s = first_row + tl.arange(0, ROWS), first + tl.arange(0, WORDS)
    sums_at = column_sums + (first_tile + tl.program_id(0)).to(tl.int64) * words + s
    tl.store(sums_at, tl.sum(tile, axis=0), mask=s < words)
    at = out + (first_row.to(tl.int64) * words + first)
    local = tl.arange(0, ROWS)[:, None] * words + tl.arange(0, WORDS)[None, :]
    tl.store(at + local, tile.to(out.dtype.element_ty), mask=(row < count)[:, None] & (s < words)[None, :])


@triton.jit
def logit_gradients(
    hidden, rows, offsets, targets, ids, base, totals, losses, grad, grad_step, scale, out, column_sums, first_tile,
    count, words, width,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute g p, times `scale`, as operands [N, S], and the unrounded sums over a tile's rows (bias gradient).

    If a column is the row's target: g (p - 1) with losses (the whole table), else 0 (an accidental hit). The floor is
    that of `log_sums`; `out` should stay in L2 until the two products that read it are done.
    """
    first_row, first = tl.program_id(0) * ROWS, tl.program_id(1) * WORDS
    tile = product(hidden, rows, first_row, first, count, words, width, ROWS, WORDS, DEPTH, EVEN, PRECISION)
    row, s = first_row + tl.arange(0, ROWS), first + tl.arange(0, WORDS)
    inside, s_in = row < count, s < words
    target = tl.load(targets + row, mask=inside, other=-1).to(tl.int32)
    g = tl.load(grad + row.to(tl.int64) * grad_step, mask=inside, other=0.0)
    if scale is not None:
        g *= tl.load(scale)
    tile += tl.load(offsets + s, mask=s_in, other=float("-inf"))[None, :]
    tile -= tl.load(totals + 2 * row, mask=inside, other=float("inf"))[:, None]
    tile = tl.exp(tile - tl.load(totals + 2 * row + 1, mask=inside, other=0.0)[:, None]) * g[:, None]
    at_target = tl.zeros([ROWS], tl.float32)
    if losses is not None:
        at_target = g * expm1_64(-tl.load(losses + row, mask=inside, other=0.0).to(tl.float64)).to(tl.float32)
    hit = target[:, None] == words_of(ids, base, s, s_in)[None, :]
    tile = tl.where(hit, at_target[:, None], tile)
    store_gradients(tile, out, column_sums, first_tile, count, words, ROWS, WORDS)


@triton.jit
def gather_samples(
    samples, samples_step, weight, weight_row, weight_col, bias, bias_step, law, rows, offsets, ids,
    count, words, width,
    CORRECTION: tl.constexpr, TERM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gather the sampled rows of the table as operands, their offsets (`offset_of`), and the words.

    The offset of a word off the table is NaN, which makes every loss NaN. Bound by memory: 4 bytes read and 2 written
    per element, once per sample for all rows of the batch.
    """
    s = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = s < count
    word = tl.load(samples + s * samples_step, mask=inside, other=0)
    known = (word >= 0) & (word < words)
    word = tl.minimum(tl.maximum(word, 0), words - 1).to(tl.int64)
    for start in range(0, width, WIDTH):
        col = start + tl.arange(0, WIDTH)
        mask = inside[:, None] & (col < width)[None, :]
        w = tl.load(weight + word[:, None] * weight_row + col[None, :] * weight_col, mask=mask, other=0.0)
        tl.store(rows + s[:, None] * width + col[None, :], w.to(rows.dtype.element_ty), mask=mask)
    offset = offset_of(word, inside, bias, bias_step, law, count, words, CORRECTION, TERM)
    tl.store(offsets + s, tl.where(known, offset, float("nan")), mask=inside)
    tl.store(ids + s, word, mask=inside)


@triton.jit
def finish_rows(
    grad, grad_step, slopes, operands, ids, weight, weight_row, weight_col, scale, d_hidden, d_rows, d_offsets,
    count, width, LOSSES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Add the target's part: its slope times g and its row to d_hidden, and times hidden to d_rows.

    d_hidden is unscaled here. slopes [N]: d loss / d(the target's logit) or, with LOSSES, the loss of a softmax, whose
    slope is p - 1. Bound by memory: 14 bytes read and 8 written per element. The target's row is read again from the
    table: keeping it between the passes would take one more [N, D].
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < count
    slope = tl.load(slopes + row, mask=inside, other=0.0)
    if LOSSES:
        slope = expm1_64(-slope.to(tl.float64)).to(tl.float32)
    d = tl.load(grad + row * grad_step, mask=inside, other=0.0) * slope
    word = tl.load(ids + row, mask=inside, other=0)
    tl.store(d_offsets + row, d, mask=inside)
    for start in range(0, width, WIDTH):
        col = start + tl.arange(0, WIDTH)
        mask = inside[:, None] & (col < width)[None, :]
        at = row[:, None] * width + col[None, :]
        h = tl.load(operands + at, mask=mask, other=0.0)
        w = tl.load(weight + word[:, None] * weight_row + col[None, :] * weight_col, mask=mask, other=0.0)
        others = tl.load(d_hidden + at, mask=mask, other=0.0)
        if scale is not None:
            others *= tl.load(scale + 1)
        tl.store(d_hidden + at, others + d[:, None] * w.to(h.dtype).to(tl.float32), mask=mask)
        tl.store(d_rows + at, d[:, None] * h.to(tl.float32), mask=mask)


def check_sizes(op: str, words: int, samples: int) -> None:
    """Raise ElmoFastError if 32-bit word numbers, or a grid with a block per tile of samples, would overflow."""
    most = MOST_BLOCKS * 64  # of the narrowest tiles
    if words >= 2**31 or samples > most:
        raise ElmoFastError(
            f"{op}: the Triton kernels take a table of less than 2^31 words and at most {most} samples; "
            f'got {words} and {samples}; use backend="reference"'
        )


def tiles(rows: int, words: int, width: int, dtype: torch.dtype, device: torch.device) -> Tiles:
    """Choose the largest tile that spills no register; smaller for few rows or words.

    The depth is the number of float32 products in one partial sum (`_kernels.plus_product`), at most 32.
    """
    float32, small = dtype == torch.float32, is_small(device)
    high, wide = (64, 64) if float32 and small else (128, 64 if float32 else 128)
    high, wide = ceil_power_of_two(rows, 16, high), ceil_power_of_two(words, 16, wide)
    depth, many = ceil_power_of_two(width, 16, 32 if float32 else 64), 64 * (64 if float32 else 128)
    return Tiles(high, wide, depth, 8 if high * wide > many else 4, 2 if float32 and small else 3)


def constants(tile: Tiles, operands: Tensor) -> dict[str, Any]:
    """Return `tile` as the kernels' constants and launch options, for these operands [N, D]."""
    return {
        "ROWS": tile.rows, "WORDS": tile.columns, "DEPTH": tile.depth, "EVEN": operands.shape[1] % tile.depth == 0,
        "PRECISION": input_precision(operands.dtype, operands.device), **tile.options,
    }  # fmt: skip


def row_blocks(width: int) -> tuple[int, int]:
    """Return (rows, columns) of one step of kernels that walk rows: 1024 elements, at least 16 bytes per thread."""
    columns = ceil_power_of_two(width, 16, 512)
    return 1024 // columns, columns


def launch_true_logits(
    hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, law: Tensor | None, operands: Tensor, ids: Tensor,
    samples: int, correction: str, term: float,
) -> Tensor:  # fmt: skip
    """Round hidden into `operands`, write the targets into `ids`, and return their logits [N]."""
    true = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
    rows, columns = row_blocks(hidden.shape[1])
    launch(
        true_logits, (cdiv(len(hidden), rows),), hidden, *hidden.stride(), targets, targets.stride(0), weight,
        *weight.stride(), bias, bias.stride(0), law, operands, true, ids, len(hidden), samples, *weight.shape,
        CORRECTION=correction, TERM=term, ROWS=rows, WIDTH=columns,
    )  # fmt: skip
    return true


def rounded_rows(weight: Tensor, first: int, words: int, scratch: Tensor | None) -> Tensor:
    """Return rows first..first+words-1 of the table [V, D] as operands: in `scratch`, or in the table's own memory."""
    if scratch is None:
        return weight.narrow(0, first, words)
    out = scratch.narrow(0, 0, words)
    rows, columns = row_blocks(weight.shape[1])
    launch(
        round_rows, (cdiv(words, rows),), weight, *weight.stride(), out, first, words, weight.shape[1],
        ROWS=rows, WIDTH=columns,
    )  # fmt: skip
    return out


def empty_sums(planes: int, words: int, count: int, tile: Tiles, device: torch.device) -> Tensor:
    """Allocate a tensor [planes, tiles of words, N].

    It has room for `planes` numbers (such as largest logit and sum of exponentials) for each row and each tile of
    `words` words.
    """
    return torch.empty(planes, cdiv(words, tile.columns), count, dtype=torch.float32, device=device)


def launch_log_sums(
    into: Tensor, operands: Tensor, rows: Tensor, offsets: Tensor, targets: Tensor, ids: Tensor | None, base: int,
    tile: Tiles,
) -> int:  # fmt: skip
    """Compute the sums of operands [N, D] against rows [S, D] without the targets; return the number of word tiles."""
    (count, width), words = operands.shape, len(rows)
    parts = cdiv(words, tile.columns)
    launch(
        log_sums, (cdiv(count, tile.rows), parts), operands, rows, offsets, targets, ids, base, *into, count,
        words, width, **constants(tile, operands),
    )  # fmt: skip
    return parts


def launch_merge(
    sums: Tensor, parts: int, state: Tensor | None, true: Tensor, losses: Tensor | None, totals: Tensor | None, *,
    first: bool,
) -> None:  # fmt: skip
    """Merge sums onto `state` [2, N] float64 (or start it); given losses [N] and totals [N, 2], finish them."""
    count = len(true)
    launch(
        merge, (cdiv(count, 32),), *sums, state, true, losses, totals, count, parts,
        FIRST=first, LAST=losses is not None, ROWS=32, PARTS=32,
    )  # fmt: skip


def scale_of(grad: Tensor, dtype: torch.dtype, lift: int = LIFT) -> Tensor | None:
    """Return [scale, 1 / scale] for float16, whose range products of g and p exceed; None if no scale is needed."""
    if dtype != torch.float16:
        return None
    scale = torch.empty(2, dtype=torch.float32, device=grad.device)
    launch(power_of_two, (1,), grad, grad.stride(0), scale, None, len(grad), LIFT=lift, BLOCK=4096, num_warps=8)
    return scale


def launch_logit_gradients(
    out: Tensor, column_sums: Tensor, first_tile: int, operands: Tensor, rows: Tensor, offsets: Tensor,
    targets: Tensor, ids: Tensor | None, base: int, totals: Tensor, losses: Tensor | None, grad: Tensor,
    scale: Tensor | None, tile: Tiles,
) -> None:  # fmt: skip
    """Compute out [N, S] operands and column_sums[first_tile:...] from operands [N, D] against rows [S, D].

    losses: [N] if the targets are among the words, else None.
    """
    (count, width), words = operands.shape, len(rows)
    launch(
        logit_gradients, (cdiv(count, tile.rows), cdiv(words, tile.columns)), operands, rows, offsets, targets,
        ids, base, totals, losses, grad, grad.stride(0), scale, out, column_sums, first_tile, count, words, width,
        **constants(tile, operands),
    )  # fmt: skip


class Drawn(NamedTuple):
    """Rows of hidden states and one sample of the table, as kernels multiply them, and room for the losses."""

    operands: Tensor
    """hidden states, rounded, [N, D]"""
    rows: Tensor
    """the samples' rows of the table, rounded, [S, D]"""
    offsets: Tensor
    """offsets of the samples' products, [S]"""
    ids: Tensor
    """all words, the targets first, clamped into the table, [N + S] int64"""
    true: Tensor
    """the targets' logits, [N]"""
    sums: Tensor
    """[planes, tiles of words, N], to be written"""
    losses: Tensor
    """[N], to be written"""
    kept: Tensor
    """numbers per row for the backward pass, [N] or [N, numbers], to be written"""
    tile: Tiles


def _rows(count: int, numbers: int) -> tuple[int, ...]:
    return (count,) if numbers == 1 else (count, numbers)


def gather(op: str, a: Any, law: Tensor | None, correction: str, term: float, planes: int, numbers: int) -> Drawn:
    """Round hidden states and the samples' rows, and compute the targets' logits.

    law, correction, term: see `offset_of`; planes: number of planes of the sums; numbers: per row of `kept`.
    """
    (count, width), size, device, dtype = a.hidden.shape, len(a.samples), a.hidden.device, operand_dtype(a.precision)
    check_sizes(op, len(a.weight), size)
    tile = tiles(count, size, width, dtype, device)
    per_row = width * dtype.itemsize + 16 + 4 * planes * cdiv(size, tile.columns)
    needed = count * per_row + size * (width * dtype.itemsize + 12)
    with explained(op, "rows", needed, per_row, count, device):
        operands, rows = (torch.empty(n, width, dtype=dtype, device=device) for n in (count, size))
        offsets = torch.empty(size, dtype=torch.float32, device=device)
        ids = torch.empty(count + size, dtype=torch.int64, device=device)
        sums = empty_sums(planes, size, count, tile, device)
        losses, kept = (torch.empty(_rows(count, n), dtype=torch.float32, device=device) for n in (1, numbers))
    table = a.weight, a.bias, law
    true = launch_true_logits(a.hidden, a.targets, *table, operands, ids, size, correction, term)
    high, columns = row_blocks(width)
    launch(
        gather_samples, (cdiv(size, high),), a.samples, a.samples.stride(0), a.weight, *a.weight.stride(),
        a.bias, a.bias.stride(0), law, rows, offsets, ids.narrow(0, count, size), size, *a.weight.shape,
        CORRECTION=correction, TERM=term, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    return Drawn(operands, rows, offsets, ids, true, sums, losses, kept, tile)


def chunk_rows(count: int, size: int, itemsize: int, chunk_bytes: int, tile: int) -> int:
    """Return rows per chunk: as many whole tiles as fit into `chunk_bytes` (at least one), with even chunks."""
    most = max(tile, chunk_bytes // max(1, size * itemsize) // tile * tile)
    even = cdiv(max(count, 1), cdiv(max(count, 1), most))
    return min(most, cdiv(even, tile) * tile)


# (d_logits, column sums, number of the first tile of rows, rows, scale, tile): writes d(logits) of these rows
LogitGradients = Callable[[Tensor, Tensor, int, slice, Tensor | None, Tiles], None]


def gradients(
    op: str, a: Any, slopes: Tensor, write: LogitGradients, *, losses: bool, lift: int = LIFT
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute d_hidden [N, D], and d_rows [N + S, D] and d_offsets [N + S] of the words `ids`, all float32.

    Per chunk of rows: d(logits) as operands, small enough to stay in L2, then two products. slopes, losses: see
    `finish_rows`; lift: of float16's scale.
    """
    (count, width), size, dtype, device = a.operands.shape, len(a.rows), a.operands.dtype, a.grad.device
    tile = tiles(count, size, width, dtype, device)
    step = chunk_rows(count, size, dtype.itemsize, a.chunk_bytes, tile.rows)
    per_row = 8 * width + 4 + 4 * size // tile.rows
    needed = min(step, count) * size * dtype.itemsize + size * (4 * width + 4) + count * per_row
    with explained(op, "rows", needed, per_row, count, device):
        chunk = torch.empty(min(step, count), size, dtype=dtype, device=device)
        d_hidden = torch.empty(count, width, dtype=torch.float32, device=device)
        d_rows = torch.empty(count + size, width, dtype=torch.float32, device=device)
        d_offsets = torch.empty(count + size, dtype=torch.float32, device=device)
        column_sums = torch.empty(cdiv(count, tile.rows), size, dtype=torch.float32, device=device)
    if count == 0:
        return d_hidden, d_rows.zero_(), d_offsets.zero_()
    scale = scale_of(a.grad, dtype, lift)
    d_sampled, sampled_offsets = d_rows.narrow(0, count, size), d_offsets.narrow(0, count, size)
    for i in range(0, count, step):
        n = min(step, count - i)
        d = chunk.narrow(0, 0, n)
        write(d, column_sums, i // tile.rows, slice(i, i + n), scale, tile)
        _triton.add_product(d_hidden.narrow(0, i, n), d, a.rows, accumulate=False)
        _triton.add_product(d_sampled, d.t(), a.operands.narrow(0, i, n), accumulate=i > 0)
    torch.sum(column_sums, 0, out=sampled_offsets)
    if scale is not None:
        torch._foreach_mul_([d_sampled, sampled_offsets], scale.select(0, 1))
    high, columns = row_blocks(width)
    launch(
        finish_rows, (cdiv(count, high),), a.grad, a.grad.stride(0), slopes, a.operands, a.ids,
        a.weight, *a.weight.stride(), scale, d_hidden, d_rows, d_offsets, count, width,
        LOSSES=losses, ROWS=high, WIDTH=columns,
    )  # fmt: skip
    return d_hidden, d_rows, d_offsets


def fake(a: Any, numbers: int) -> tuple[Tensor, ...]:
    """Allocate losses, kept, operands, rows, offsets and ids of `Drawn`."""
    (count, width), size, dtype, of = a.hidden.shape, a.samples.shape[0], operand_dtype(a.precision), a.hidden.new_empty
    return (
        of(count), of(_rows(count, numbers)), of(count, width, dtype=dtype), of(size, width, dtype=dtype), of(size),
        a.targets.new_empty(count + size),
    )  # fmt: skip


def row_shapes(a: Any) -> dict[str, Any]:
    """Return the shapes of the results of `gradients`."""
    (count, width), words = a.operands.shape, a.ids.shape[0]
    return {"hidden": (count, width), "weight": (words, width), "bias": (words,)}


def tables(a: Any, rows: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients of weight and bias, from the gradients of the rows of the words `ids`."""
    shapes = {"weight": a.weight.shape, "bias": a.weight.shape[:1]}
    return rows | {name: table_gradient(shape, a.ids, rows[name], a.sparse) for name, shape in shapes.items()}
