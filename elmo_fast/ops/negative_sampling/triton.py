"""negative_sampling in Triton: scores that exist in registers only, their gradient in chunks in L2, no host sync."""

import math
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops import _softmax_triton
from elmo_fast.ops._autograd import Backward
from elmo_fast.ops._kernels import logistic, softplus
from elmo_fast.ops._softmax_triton import log1p64, product, store_gradients, words_of
from elmo_fast.ops._triton import Tiles, cdiv, define, launch
from elmo_fast.ops.negative_sampling.op import NegativeSamplingArguments


@triton.jit
def _scores(
    hidden, rows, offsets, targets, ids, count, words, width,
    COUNT_HITS: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return rows and scores of a program's tile.

    A score is -infinity if there is no sample and, unless COUNT_HITS, if the sample is the row's target. A sample off
    the table has offset NaN and is never left out: it makes every score NaN.
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
    """Compute sums [tiles of words, N]: per row and tile the sum of ln(1 + e^s).

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
    """Compute losses [N], and slopes [N] of the targets' terms, -σ(-s).

    A loss is the target's -ln σ(s) plus `share` times the parts of a row, added in order in float64.
    """
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
    """Compute g share σ(s), times `scale`, as operands [N, S], and the unrounded sums over the rows of a tile.

    As in `logit_gradients` of the softmax, `out` should stay in L2 until the two products that read it are done.
    """
    row, tile = _scores(
        hidden, rows, offsets, targets, ids, count, words, width, COUNT_HITS, ROWS, WORDS, DEPTH, EVEN, PRECISION
    )  # fmt: skip
    g = tl.load(grad + row.to(tl.int64) * grad_step, mask=row < count, other=0.0) * share
    if scale is not None:
        g *= tl.load(scale)
    tile = logistic(tile) * g[:, None]
    store_gradients(tile, out, column_sums, first_tile, count, words, ROWS, WORDS)


def run(a: NegativeSamplingArguments) -> Tensor:
    log_noise = None if a.log_noise is None else a.log_noise.detach()
    options = a.negatives, a.log_noise is not None, a.sparse, a.chunk_bytes, a.precision
    return _op(a.hidden, a.targets, a.weight, a.bias, a.samples, log_noise, *options)[0]


def _forward(a: Any) -> tuple[Tensor, ...]:
    """Compute losses [N] and, for backward, slopes of the targets' terms [N], operands and words.

    The operands are of hidden [N, D] and of the samples' rows [S, D], with their offsets [S]; the words are all words
    [N + S], targets first.
    """
    law, correction, term = None, "none", 0.0
    if a.log_noise is not None:
        law, correction, term = a.log_noise.contiguous(), "noise", math.log(a.negatives)
    d = _softmax_triton.gather("negative_sampling", a, law, correction, term, 1, 1)
    (count, width), size = d.operands.shape, len(d.rows)
    parts = cdiv(size, d.tile.columns)
    launch(
        softplus_sums, (cdiv(count, d.tile.rows), parts), d.operands, d.rows, d.offsets, d.ids,
        d.ids.narrow(0, count, size), d.sums, count, size, width,
        COUNT_HITS=a.count_hits, **_softmax_triton.constants(d.tile, d.operands),
    )  # fmt: skip
    launch(
        finish, (cdiv(count, 32),), d.sums, d.true, d.losses, d.kept, count, parts, a.negatives / size,
        ROWS=32, PARTS=32,
    )  # fmt: skip
    return d.losses, d.kept, d.operands, d.rows, d.offsets, d.ids


def _backward(a: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `_softmax_triton.gradients`; the scores of a chunk are computed again."""
    (count, width), size = a.operands.shape, len(a.rows)
    share = a.negatives / size

    def write(d: Tensor, sums: Tensor, first: int, rows: slice, scale: Tensor | None, tile: Tiles) -> None:
        n = rows.stop - rows.start
        h, target, g = (x.narrow(0, rows.start, n) for x in (a.operands, a.ids, a.grad))
        launch(
            score_gradients, (cdiv(n, tile.rows), cdiv(size, tile.columns)), h, a.rows, a.offsets, target,
            a.ids.narrow(0, count, size), g, g.stride(0), share, scale, d, sums, first, n, size, width,
            COUNT_HITS=a.count_hits, **_softmax_triton.constants(tile, h),
        )  # fmt: skip

    # σ(s) times the share is what float16 has to hold: the share's power of two goes into the scale.
    lift = _softmax_triton.LIFT - math.ceil(math.log2(share))
    return _softmax_triton.gradients("negative_sampling", a, a.slopes, write, losses=False, lift=lift)


define(
    "negative_sampling_backward(Tensor grad, Tensor slopes, Tensor operands, Tensor rows, Tensor offsets, Tensor ids, "
    "Tensor weight, float negatives, bool count_hits, bool sparse, int chunk_bytes) "
    "-> (Tensor hidden, Tensor weight, Tensor bias)",
    _backward,
)
_op = define(
    "negative_sampling(Tensor hidden, Tensor targets, Tensor weight, Tensor bias, Tensor samples, Tensor? log_noise, "
    "float negatives, bool count_hits, bool sparse, int chunk_bytes, str precision) "
    "-> (Tensor losses, Tensor slopes, Tensor operands, Tensor rows, Tensor offsets, Tensor ids)",
    _forward,
    lambda a: _softmax_triton.fake(a, 1),
    Backward(shapes=_softmax_triton.row_shapes, finish=_softmax_triton.tables),
)
