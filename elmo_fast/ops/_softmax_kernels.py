"""Triton kernels that the losses over a vocabulary share: rows of logits that exist in registers only.

Sums of exponentials over tiles, merged later (Milakov and Gimelshein 2018). Tiles are [ROWS, WORDS] of hidden [N, D]
against rows of the table [S, D]: products of 16-bit (or float32) operands accumulated in float32. Addresses are a
64-bit base per tile and 32-bit offsets within it.
"""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from elmo_fast.ops._kernels import plus_product


@triton.jit
def log1p64(x):
    """ln(1 + x) of float64 to a few units in the last place (Goldberg 1991, theorem 4); -1 gives a large negative."""
    u = 1.0 + x
    exact = u == 1.0
    return tl.where(exact, x, tl.log(tl.maximum(u, 1e-300)) * x / tl.where(exact, 1.0, u - 1.0))


@triton.jit
def expm1_64(x):
    """exp(x) - 1 of float64, x <= 0, to a few units in the last place (Kahan's form)."""
    u = tl.exp(x)
    plain = (u == 1.0) | (u == 0.0)
    return tl.where(plain, tl.where(u == 0.0, -1.0, x), (u - 1.0) * x / tl.log(tl.where(plain, 2.0, u)))


@triton.jit
def log_expected(word, tries, samples, words, CORRECTION: tl.constexpr, TERM: tl.constexpr):
    """ln Q of `expected_counts`, as float32: float64 inside, or AllenNLP's rounding to float32 at every step."""
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
    """b of words that lie in the table, less what CORRECTION says: "noise" ln P + TERM, of which `law` holds ln P [V];
    "none" nothing; others ln Q, of which `law` holds the number of tries."""
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
    """hidden -> operands; the target's logit from rounded values, summed in float32; NaN for a word off the table.

    Bound by memory: 2 · 4 bytes read and 2 written per element.
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
    """Rows first.. of a table as operands; bound by memory: 4 bytes read and 2 written per element."""
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
    """One tile of hidden · rows^T; EVEN: D is a multiple of DEPTH."""
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
    """The words of a tile's columns: looked up, or counted from `base` where the table itself is walked."""
    if ids is not None:
        return tl.load(ids + s, mask=inside, other=-1).to(tl.int32)
    return (base + s).to(tl.int32)


@triton.jit
def log_sums(
    hidden, rows, offsets, targets, ids, base, maxima, sums, count, words, width,
    ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Per row and tile of words: the largest logit and the sum of exp(logit - largest), the target left out.

    One tile per program: a loop over tiles needs so many more registers that two programs no longer fit on a
    multiprocessor, where the exponentials and first loads of one hide behind the products of the other. Row tiles run
    fastest over the grid: the programs that run at a time read the same rows of the table from L2. The floor is
    2 N S D operations at 790 TFLOP/s; a 128 x 128 tile reads 32 KiB of L2 for 2.1 MFLOP, 12 TB/s at that rate: L2
    bounds it, not memory.
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
    """Parts of a row merged in order, in float64, onto `state` [2, N] (largest, sum) unless FIRST; LAST: losses, and
    totals [N, 2]: the largest logit and the log-sum-exp relative to it (near 1e6 float32 has sixteenths left).

    Where the target is the largest, log1p keeps the digits of a small loss.
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
    """A program's tile of d(logits) as operands [N, S], and the unrounded sums over its rows (the bias' gradient)."""
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
    """g p, times `scale`, as operands [N, S], and the unrounded sums over the rows of a tile (the bias' gradient).

    Where a column is the row's target: g (p - 1) with losses (the whole table), else 0 (an accidental hit). The floor
    is that of `log_sums`; `out` is meant to stay in L2 until the two products that read it are done.
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
