"""Triton kernels of negative sampling: sums of ln(1 + e^s) over tiles of scores that exist in registers only."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from elmo_fast.ops._kernels import logistic, softplus
from elmo_fast.ops._softmax_triton import log1p64, product, store_gradients, words_of


@triton.jit
def _scores(
    hidden, rows, offsets, targets, ids, count, words, width,
    COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows and scores of a program's tile, -infinity where there is no sample and, unless COUNT_HITS, where it is the
    row's target.

    A sample off the table has offset NaN and is left out nowhere: it makes every score NaN.
    """
    first_row, first = tl.program_id(0) * ROWS, tl.program_id(1) * WORDS
    tile = product(hidden, rows, first_row, first, count, words, width, ROWS, WORDS, DEPTH, EVEN, PRECISION)
    row, s = first_row + tl.arange(0, ROWS), first + tl.arange(0, WORDS)
    # The barriers keep the assembler from loading all vectors at once, as in `log_sums`.
    tl.debug_barrier()
    offset = tl.load(offsets + s, mask=s < words, other=0.0)
    tile = tl.where((s < words)[None, :], tile + offset[None, :], float("-inf"))
    tl.debug_barrier()
    if not COUNT_HITS:
        target = tl.load(targets + row, mask=row < count, other=-1).to(tl.int32)
        word = tl.where(offset == offset, words_of(ids, 0, s, s < words), -1)
        tile = tl.where(target[:, None] == word[None, :], float("-inf"), tile)
    return row, tile


@triton.jit
def softplus_sums(
    hidden, rows, offsets, targets, ids, sums, count, words, width,
    COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """sums [tiles of words, N]: per row and tile the sum of ln(1 + e^s).

    Tiles and grid are those of `log_sums`, and so is the floor, 2 N S D operations. A score costs one exponential and
    about 20 more instructions. On sm_90 148 registers leave room for one program per multiprocessor, not two.
    """
    row, tile = _scores(
        hidden, rows, offsets, targets, ids, count, words, width, COUNT_HITS, ROWS, WORDS, DEPTH, EVEN, PRECISION
    )  # fmt: skip
    place = tl.program_id(1).to(tl.int64) * count + row
    tl.store(sums + place, tl.sum(softplus(tile), axis=1), mask=row < count)


@triton.jit
def finish(sums, true, losses, slopes, count, parts, share, ROWS: tl.constexpr, PARTS: tl.constexpr):
    """losses [N]: the target's -ln σ(s) and `share` times the parts of a row, added in order in float64;
    slopes [N]: that of the target's term, -σ(-s)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    total = tl.zeros([ROWS], tl.float64)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        mask = (part < parts)[:, None] & inside[None, :]
        place = part.to(tl.int64)[:, None] * count + row[None, :]
        total += tl.sum(tl.load(sums + place, mask=mask, other=0.0).to(tl.float64), axis=0)
    t = tl.load(true + row, mask=inside, other=0.0)
    wide = t.to(tl.float64)
    own = log1p64(tl.exp(-tl.abs(wide))) + tl.where(t < 0, -wide, 0.0)
    tl.store(losses + row, (own + share * total).to(tl.float32), mask=inside)
    tl.store(slopes + row, -logistic(-t), mask=inside)


@triton.jit
def score_gradients(
    hidden, rows, offsets, targets, ids, grad, grad_step, share, scale, out, column_sums, first_tile,
    count, words, width,
    COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """g share σ(s), times `scale`, as operands [N, S], and the unrounded sums over the rows of a tile.

    As `logit_gradients` of the softmax: `out` is meant to stay in L2 until the two products that read it are done.
    """
    row, tile = _scores(
        hidden, rows, offsets, targets, ids, count, words, width, COUNT_HITS, ROWS, WORDS, DEPTH, EVEN, PRECISION
    )  # fmt: skip
    g = tl.load(grad + row.to(tl.int64) * grad_step, mask=row < count, other=0.0) * share
    if scale is not None:
        g *= tl.load(scale)
    tile = logistic(tile) * g[:, None]
    store_gradients(tile, out, column_sums, first_tile, count, words, ROWS, WORDS)
