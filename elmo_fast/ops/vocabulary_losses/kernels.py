"""full_softmax, sampled_softmax and negative_sampling in Triton: kernels of logits, and their launches.

Rows of logits exist in registers only: sums of exponentials over tiles are merged later (Milakov and Gimelshein 2018).
Tiles are [ROWS, WORDS] of hidden [N, D] against rows of the table [S, D]: products of 16-bit (or float32) operands
accumulated in float32. Addresses are a 64-bit base per tile and 32-bit offsets within it. The gradient of the logits
exists in chunks that stay in L2; the host never waits.

full_softmax's table is 1.6 GB of float32 for 793,471 words. Rounding it inside the tiles would read 4 bytes per element
for every tile of rows, 32 GB of L2 for 2560 rows; a chunk rounded first is read from memory once, whatever the number
of rows (0.4 ms at 4.3 TB/s, the floor for few rows; for many rows the floor is 2 N V D operations, 2.6 ms for 2560). No
copy of the table is cached.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _triton
from elmo_fast.ops._kernels import logistic, plus_product, softplus
from elmo_fast.ops._sampling import CORRECTIONS
from elmo_fast.ops._triton import Tiles, cdiv, ceil_power_of_two, implement, input_precision, is_small, launch

# Rows or words per chunk, so that 32-bit offsets within a tile of any [rows, words] do not overflow.
MOST_CHUNK = 2**20


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
def vocabulary_loss_forward_gather_kernel(
    words, words_step, hidden, hidden_row, hidden_col, weight, weight_row, weight_col, bias, bias_step, law,
    operands, results, ids, count, samples, size, width,
    CORRECTION: tl.constexpr, TERM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Look words up in the table: their offsets or, with hidden, the logits of the row that has each as its target.

    An offset is b less the term of CORRECTION: "noise" subtracts ln P + TERM, where `law` holds ln P [V]; "none"
    subtracts nothing; others subtract ln Q, where `law` holds the number of tries. The table's rows are stored as
    operands or, with hidden, hidden is, and rounded values are multiplied and summed in float32. A word off the table
    has id and row of the nearest one, and its result is NaN, which makes losses NaN. Bound by memory.
    """
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = i < count
    word = tl.load(words + i * words_step, mask=inside, other=0)
    known = (word >= 0) & (word < size)
    # A wrong word reads the nearest row instead of foreign memory.
    word = tl.minimum(tl.maximum(word, 0), size - 1).to(tl.int64)
    result = tl.zeros([ROWS], tl.float32)
    for start in range(0, width, WIDTH):
        col = (start + tl.arange(0, WIDTH)).to(tl.int64)
        mask = inside[:, None] & (col < width)[None, :]
        w = tl.load(weight + word[:, None] * weight_row + col[None, :] * weight_col, mask=mask, other=0.0)
        if hidden is None:
            tl.store(operands + i[:, None] * width + col[None, :], w.to(operands.dtype.element_ty), mask=mask)
        else:
            h = tl.load(hidden + i[:, None] * hidden_row + col[None, :] * hidden_col, mask=mask, other=0.0)
            h = h.to(operands.dtype.element_ty)
            tl.store(operands + i[:, None] * width + col[None, :], h, mask=mask)
            result += tl.sum(h.to(tl.float32) * w.to(h.dtype).to(tl.float32), axis=1)
    result += tl.load(bias + word * bias_step, mask=inside, other=0.0)
    if CORRECTION == "noise":
        result -= tl.load(law + word, mask=inside, other=0.0) + TERM
    elif CORRECTION != "none":
        result -= log_expected(word, tl.load(law), samples, size, CORRECTION, TERM)
    tl.store(results + i, tl.where(known, result, float("nan")), mask=inside)
    tl.store(ids + i, word, mask=inside)


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
def hits(targets, ids, base, row, s, count, words):
    """Return where a column is the row's target. Words of columns are looked up, or counted from `base` without ids."""
    target = tl.load(targets + row, mask=row < count, other=-1).to(tl.int32)
    if ids is not None:
        word = tl.load(ids + s, mask=s < words, other=-1).to(tl.int32)
    else:
        word = (base + s).to(tl.int32)
    return target[:, None] == word[None, :]


@triton.jit
def logits(
    hidden, rows, offsets, targets, ids, base, count, words, width,
    BARRIERS: tl.constexpr, LOGISTIC: tl.constexpr, COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
    DEPTH: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a program's tile of logits; return its rows, its columns and the tile.

    A logit is -infinity past the words and, unless COUNT_HITS, where the column is the row's target. A sample off the
    table has offset NaN and is never left out. LOGISTIC: infinite logits never become NaN here.
    BARRIERS keep the assembler from loading all vectors at once.
    """
    first_row, first = tl.program_id(0) * ROWS, tl.program_id(1) * WORDS
    tile = product(hidden, rows, first_row, first, count, words, width, ROWS, WORDS, DEPTH, EVEN, PRECISION)
    row, s = first_row + tl.arange(0, ROWS), first + tl.arange(0, WORDS)
    if not (LOGISTIC or COUNT_HITS):
        tile = tl.where(hits(targets, ids, base, row, s, count, words), float("-inf"), tile)
    if BARRIERS:
        tl.debug_barrier()
    offset = tl.load(offsets + s, mask=s < words, other=float("-inf"))
    tile += offset[None, :]
    if LOGISTIC:
        tile = tl.where((s < words)[None, :], tile, float("-inf"))
    if BARRIERS:
        tl.debug_barrier()
    if LOGISTIC and not COUNT_HITS:
        hit = hits(targets, ids, base, row, s, count, words) & (offset == offset)[None, :]
        tile = tl.where(hit, float("-inf"), tile)
    return row, s, tile


@triton.jit
def vocabulary_loss_forward_tile_sums_kernel(
    hidden, rows, offsets, targets, ids, base, maxima, sums, count, words, width,
    LOGISTIC: tl.constexpr, COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute, per row and tile of words, the largest logit and the sum of exp(logit - largest).

    LOGISTIC: the sum of ln(1 + exp(logit)) alone. The target is left out unless COUNT_HITS. One tile per program: a
    loop over tiles needs so many more registers that two programs no longer fit on a multiprocessor, where the
    exponentials and first loads of one hide behind the products of the other. Row tiles run fastest over the grid:
    programs that run at the same time read the same rows of the table from L2. The floor is 2 N S D operations at 790
    TFLOP/s; a 128 x 128 tile reads 32 KiB of L2 for 2.1 MFLOP, 12 TB/s at that rate: L2 bounds it, not memory.
    """
    # With barriers a softmax takes 128 registers on sm_90, so that two programs fit on a multiprocessor.
    row, _, tile = logits(
        hidden, rows, offsets, targets, ids, base, count, words, width,
        True, LOGISTIC, COUNT_HITS, ROWS, WORDS, DEPTH, EVEN, PRECISION,
    )  # fmt: skip
    place = tl.program_id(1).to(tl.int64) * count + row
    if LOGISTIC:
        tile = softplus(tile)
    else:
        largest = tl.max(tile, axis=1)
        tl.store(maxima + place, largest, mask=row < count)
        tile = tl.exp(tile - tl.where(largest == float("-inf"), 0.0, largest)[:, None])
    tl.store(sums + place, tl.sum(tile, axis=1), mask=row < count)


@triton.jit
def vocabulary_loss_forward_merge_kernel(
    maxima, sums, state, true, losses, kept, share, count, parts,
    LOGISTIC: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Merge the parts of a row in order, in float64, onto `state` [2, N] (largest, sum) unless FIRST.

    LAST: write losses and, of each row, what the backward pass needs: d loss / d(the target's logit) and, of a softmax,
    the largest logit and the log-sum-exp relative to it (near 1e6 float32 has sixteenths left). If the target is the
    largest, log1p keeps the digits of a small loss. LOGISTIC: a loss is the target's -ln σ plus `share` times the sum.
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
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
        added = tl.load(sums + place, mask=mask, other=0.0).to(tl.float64)
        if not LOGISTIC:
            each = tl.load(maxima + place, mask=mask, other=float("-inf")).to(tl.float64)
            top = tl.maximum(largest, tl.max(each, axis=0))
            shift = tl.where(top == float("-inf"), 0.0, top)
            added *= tl.exp(each - shift[None, :])
            total *= tl.exp(largest - shift)
            largest = top
        total += tl.sum(added, axis=0)
    if not LAST:
        tl.store(state + row, largest, mask=inside)
        tl.store(state + count + row, total, mask=inside)
    else:
        t = tl.load(true + row, mask=inside, other=0.0).to(tl.float64)
        if LOGISTIC:
            loss = log1p64(tl.exp(-tl.abs(t))) + tl.where(t < 0, -t, 0.0) + share * total
            tl.store(kept + row, (-logistic(-t)).to(tl.float32), mask=inside)
        else:
            top = tl.maximum(largest, t)
            others = total * tl.exp(largest - top)
            whole = others + tl.exp(t - top)
            # t - top: 0, but NaN for an infinite logit.
            loss = tl.where(t >= largest, log1p64(others) + (t - top), (largest - t) + tl.log(whole))
            tl.store(kept + 3 * row, expm1_64(-loss).to(tl.float32), mask=inside)
            tl.store(kept + 3 * row + 1, top.to(tl.float32), mask=inside)
            tl.store(kept + 3 * row + 2, tl.log(whole).to(tl.float32), mask=inside)
        tl.store(losses + row, loss.to(tl.float32), mask=inside)


@triton.jit
def store_gradients(tile, out, column_sums, count, words, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """Store a program's tile of d(logits) as operands [N, S], and the unrounded sums over its rows (bias gradient).

    In the body of `vocabulary_loss_backward_logits_kernel` these lines would make the assembler spill in float32 on
    sm_86.
    """
    first_row, first = tl.program_id(0) * ROWS, tl.program_id(1) * WORDS
    row, s = first_row + tl.arange(0, ROWS), first + tl.arange(0, WORDS)
    tl.store(column_sums + tl.program_id(0).to(tl.int64) * words + s, tl.sum(tile, axis=0), mask=s < words)
    at = out + (first_row.to(tl.int64) * words + first)
    local = tl.arange(0, ROWS)[:, None] * words + tl.arange(0, WORDS)[None, :]
    tl.store(at + local, tile.to(out.dtype.element_ty), mask=(row < count)[:, None] & (s < words)[None, :])


@triton.jit
def vocabulary_loss_backward_logits_kernel(
    hidden, rows, offsets, targets, ids, base, kept, grad, grad_step, share, out, column_sums,
    count, words, width,
    LOGISTIC: tl.constexpr, COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr,
    EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute d(logits) as operands [N, S], and the unrounded sums over a tile's rows (bias gradient).

    g p of a softmax, with the target's slope in place of p if the whole table is walked; g share σ(logit) if LOGISTIC;
    0 where the target is left out. The floor is that of `vocabulary_loss_forward_tile_sums_kernel`; `out`
    should stay in L2 until the two products that read it are done.
    """
    row, s, tile = logits(
        hidden, rows, offsets, targets, ids, base, count, words, width,
        False, LOGISTIC, COUNT_HITS, ROWS, WORDS, DEPTH, EVEN, PRECISION,
    )  # fmt: skip
    inside = row < count
    g = tl.load(grad + row.to(tl.int64) * grad_step, mask=inside, other=0.0)
    if LOGISTIC:
        g *= share
        tile = logistic(tile) * g[:, None]
    else:
        tile -= tl.load(kept + 3 * row + 1, mask=inside, other=float("inf"))[:, None]
        tile = tl.exp(tile - tl.load(kept + 3 * row + 2, mask=inside, other=0.0)[:, None]) * g[:, None]
    if ids is None:
        at_target = g * tl.load(kept + 3 * row, mask=inside, other=0.0)
        tile = tl.where(hits(targets, ids, base, row, s, count, words), at_target[:, None], tile)
    store_gradients(tile, out, column_sums, count, words, ROWS, WORDS)


@triton.jit
def vocabulary_loss_backward_targets_kernel(
    grad, grad_step, slopes, slopes_step, operands, ids, weight, weight_row, weight_col, d_hidden, d_rows, d_offsets,
    count, width, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Add the target's part: its slope times g and its row to d_hidden, and times hidden to d_rows.

    Bound by memory: 14 bytes read and 8 written per element. The target's row is read again
    from the table: keeping it between the passes would take one more [N, D].
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < count
    slope = tl.load(slopes + row * slopes_step, mask=inside, other=0.0)
    d = tl.load(grad + row * grad_step, mask=inside, other=0.0) * slope
    word = tl.load(ids + row, mask=inside, other=0)
    tl.store(d_offsets + row, d, mask=inside)
    for start in range(0, width, WIDTH):
        col = (start + tl.arange(0, WIDTH)).to(tl.int64)
        mask = inside[:, None] & (col < width)[None, :]
        at = row[:, None] * width + col[None, :]
        h = tl.load(operands + at, mask=mask, other=0.0)
        w = tl.load(weight + word[:, None] * weight_row + col[None, :] * weight_col, mask=mask, other=0.0)
        others = tl.load(d_hidden + at, mask=mask, other=0.0)
        tl.store(d_hidden + at, others + d[:, None] * w.to(h.dtype).to(tl.float32), mask=mask)
        tl.store(d_rows + at, d[:, None] * h.to(tl.float32), mask=mask)


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


class Words(NamedTuple):
    """The words that all rows are scored against: a sample, or the whole table."""

    rows: Tensor
    """[S, D]: operands or, with `scratch`, the table itself"""
    offsets: Tensor
    """added to the products, [S], contiguous"""
    ids: Tensor | None
    """[S] int64; None: the words from 0 on"""
    scratch: Tensor | None = None
    """room for a chunk of rows as operands"""

    def chunk(self, first: int, count: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return operands, offsets and ids of the words first..first+count-1."""
        rows, offsets = (each.narrow(0, first, count) for each in (self.rows, self.offsets))
        if self.scratch is not None:
            rows = self.scratch.narrow(0, 0, count).copy_(rows)
        return rows, offsets, None if self.ids is None else self.ids.narrow(0, first, count)


def full_table(weight: Tensor, bias: Tensor, most: int, dtype: torch.dtype) -> Words:
    """Return the whole table, and room for `most` of its rows as operands if its own are none."""
    serves = weight.dtype == dtype and weight.is_contiguous()
    scratch = None if serves else torch.empty(most, weight.shape[1], dtype=dtype, device=weight.device)
    return Words(weight, bias.contiguous(), None, scratch)


def chunk_length(total: int, room: int, tile: int) -> int:
    """Return the length of even chunks of `total` rows or words: whole tiles, as many as fit into `room`, or one."""
    most = max(tile, min(room, MOST_CHUNK) // tile * tile)
    even = cdiv(max(total, 1), cdiv(max(total, 1), most))
    return cdiv(even, tile) * tile


def losses(
    a: Any, samples: Tensor | None, law: Tensor | None = None, correction: str = "none", term: float = 0.0,
    *, share: float | None = None, count_hits: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Compute losses [N], and what the backward pass needs: `kept`, operands of hidden [N, D], and more.

    `vocabulary_loss_forward_merge_kernel` documents `kept`.
    samples: None is the whole table, and the targets [N] are saved; otherwise all words [N + S], targets first, are the
    second result, and operands of the samples' rows [S, D] and their offsets [S] are saved.
    law, correction, term: see `vocabulary_loss_forward_gather_kernel`;
    share: weight of the sum of a logistic loss, None for a softmax;
    count_hits: samples equal to the target are not left out.
    """
    (count, width), device, dtype = a.hidden.shape, a.hidden.device, getattr(torch, a.precision)
    size, extra = (len(a.weight), 0) if samples is None else (len(samples), len(samples))
    tile = tiles(count, size, width, dtype, device)
    row_bytes, logistic = width * dtype.itemsize, share is not None
    step = extra or min(size, chunk_length(size, a.chunk_bytes // max(1, row_bytes), tile.columns))
    empty = functools.partial(torch.empty, dtype=torch.float32, device=device)
    operands, ids = empty(count, width, dtype=dtype), empty(count + extra, dtype=torch.int64)
    true, results, kept = empty(count), empty(count), empty(count, 1 if logistic else 3)
    state = empty(2 if step < size else 0, count, dtype=torch.float64)
    planes = empty(1 if logistic else 2, cdiv(step, tile.columns), count)
    maxima, sums = (planes.select(0, i) for i in (0, -1))  # one of a logistic loss
    if samples is None:
        words = full_table(a.weight, a.bias, step, dtype)
    else:
        words = Words(empty(size, width, dtype=dtype), empty(size), ids.narrow(0, count, size))
    high, wide = row_blocks(width)
    lookups: list[tuple[Any, ...]] = [(a.targets, a.hidden, operands, true, ids)]
    if samples is not None:
        lookups.append((samples, None, *words[:3]))
    for looked_up, hidden, *into in lookups:
        launch(
            vocabulary_loss_forward_gather_kernel, (cdiv(len(looked_up), high),),
            looked_up, looked_up.stride(0), hidden, *a.hidden.stride(), a.weight,
            *a.weight.stride(), a.bias, a.bias.stride(0), law, *into, len(looked_up), size, *a.weight.shape,
            CORRECTION=correction, TERM=term, ROWS=high, WIDTH=wide,
        )  # fmt: skip
    for first in range(0, size, step):
        rows, offsets, columns = words.chunk(first, min(step, size - first))
        parts = cdiv(len(rows), tile.columns)
        launch(
            vocabulary_loss_forward_tile_sums_kernel, (cdiv(count, tile.rows), parts),
            operands, rows, offsets, ids, columns, first, maxima, sums,
            count, len(rows), width, LOGISTIC=logistic, COUNT_HITS=count_hits, **constants(tile, operands),
        )  # fmt: skip
        launch(
            vocabulary_loss_forward_merge_kernel, (cdiv(count, 32),),
            maxima, sums, state, true, results, kept, share, count, parts,
            LOGISTIC=logistic, FIRST=first == 0, LAST=first + len(rows) == size, ROWS=32, PARTS=32,
        )  # fmt: skip
    saved = [kept, operands, *([ids] if samples is None else words[:2])] if a.save else []
    return (results, saved) if samples is None else (results, ids, saved)


def gradients(
    a: Any, *, full: bool = False, share: float | None = None, count_hits: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute d_hidden [N, D], and d_rows [N + S, D] and d_offsets [N + S] of the words `ids`, all float32.

    With `full`, d_weight [V, D] and d_bias [V] of the whole table. Logits are computed again in chunks of
    `chunk_bytes`, small enough to stay in L2, with two products for each. share, count_hits: as for `losses`.
    """
    kept, operands, *rest = a.saved
    (count, width), dtype, device = operands.shape, operands.dtype, a.grad.device
    size, extra = (len(a.weight), 0) if full else (len(rest[0]), count)
    all_ids = rest[0] if full else a.ids
    tile, room = tiles(count, size, width, dtype, device), a.chunk_bytes // dtype.itemsize
    high = min(max(count, 1), chunk_length(count, room // (tile.columns if full else size), tile.rows))
    wide = min(size, chunk_length(size, room // high, tile.columns)) if full else size
    row_tiles = cdiv(count, tile.rows)
    empty = functools.partial(torch.empty, dtype=torch.float32, device=device)
    chunk, column_sums = empty(high * wide, dtype=dtype), empty(row_tiles * wide)
    d_hidden, d_rows, d_offsets = empty(count, width), empty(extra + size, width), empty(extra + size)
    if full:
        words = full_table(a.weight, a.bias, wide, dtype)
    else:
        words = Words(rest[0], rest[1], all_ids.narrow(0, count, size))
    if count == 0:
        return d_hidden, d_rows.zero_(), d_offsets.zero_()
    d_table, d_bias = d_rows.narrow(0, extra, size), d_offsets.narrow(0, extra, size)
    for j in range(0, size, wide):
        m = min(wide, size - j)
        part, offsets, ids = words.chunk(j, m)
        sums = column_sums.narrow(0, 0, row_tiles * m).view(row_tiles, m)
        for i in range(0, count, high):
            n = min(high, count - i)
            h, target, k, g, d_h = (x.narrow(0, i, n) for x in (operands, all_ids, kept, a.grad, d_hidden))
            d, grid = chunk.narrow(0, 0, n * m).view(n, m), (cdiv(n, tile.rows), cdiv(m, tile.columns))
            launch(
                vocabulary_loss_backward_logits_kernel, grid,
                h, part, offsets, target, ids, j, k, g, g.stride(0), share, d,
                sums.narrow(0, i // tile.rows, grid[0]), n, m, width,
                LOGISTIC=share is not None, COUNT_HITS=count_hits or full, **constants(tile, h),
            )  # fmt: skip
            _triton.add_product(d_h, d, part, accumulate=j > 0)
            _triton.add_product(d_table.narrow(0, j, m), d.t(), h, accumulate=i > 0)
        torch.sum(sums, 0, out=d_bias.narrow(0, j, m))
    if not full:
        high, columns = row_blocks(width)
        launch(
            vocabulary_loss_backward_targets_kernel, (cdiv(count, high),),
            a.grad, a.grad.stride(0), kept, kept.stride(0), operands, all_ids,
            a.weight, *a.weight.stride(), d_hidden, d_rows, d_offsets, count, width, ROWS=high, WIDTH=columns,
        )  # fmt: skip
    return d_hidden, d_rows, d_offsets


def saved_by(a: Any, numbers: int, samples: Tensor | None = None) -> list[Tensor]:
    """Allocate what `losses` saves; numbers: per row of `kept`."""
    (count, width), dtype, new = a.hidden.shape, getattr(torch, a.precision), a.hidden.new_empty
    of_rows = [new(count, numbers), new(count, width, dtype=dtype)]
    if samples is None:
        return [*of_rows, a.targets.new_empty(count)]
    return [*of_rows, new(len(samples), width, dtype=dtype), new(len(samples))]


def _sampled_softmax(a: Any) -> tuple[Any, ...]:
    return losses(a, a.samples, a.tries, a.correction, CORRECTIONS[a.correction])


def _negative_sampling(a: Any) -> tuple[Any, ...]:
    law: tuple[Any, ...] = (None, "none", 0.0)
    if a.log_noise is not None:
        law = a.log_noise.contiguous(), "noise", math.log(a.negatives)
    share, count_hits = a.negatives / len(a.samples), a.log_noise is not None
    return losses(a, a.samples, *law, share=share, count_hits=count_hits)


def _negative_sampling_backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    share = a.negatives / len(a.saved[2])
    return gradients(a, share=share, count_hits=a.log_noise is not None)


implement("full_softmax", lambda a: losses(a, None), lambda a: saved_by(a, 3))
implement("full_softmax_backward", lambda a: gradients(a, full=True))
implement("sampled_softmax", _sampled_softmax, lambda a: saved_by(a, 3, a.samples))
implement("sampled_softmax_backward", lambda a: gradients(a))
implement("negative_sampling", _negative_sampling, lambda a: saved_by(a, 1, a.samples))
implement("negative_sampling_backward", _negative_sampling_backward)
