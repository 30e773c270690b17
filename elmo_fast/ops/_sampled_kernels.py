"""Triton kernels of the losses over a shared sample: its rows gathered, the targets' part of the gradient."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

from elmo_fast.ops._softmax_kernels import expm1_64, offset_of


@triton.jit
def gather_samples(
    samples, samples_step, weight, weight_row, weight_col, bias, bias_step, law, rows, offsets, ids,
    count, words, width,
    CORRECTION: tl.constexpr, TERM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The sampled rows of the table as operands, their offsets (`offset_of`), and the words; the offset of a word off
    the table is NaN, which makes every loss NaN.

    Bound by memory: 4 bytes read and 2 written per element, once per sample for all rows of the batch.
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
    """The target's part: its slope times g and its row, added to d_hidden (unscaled here), and times hidden, to d_rows.

    slopes [N]: d loss / d(the target's logit) or, with LOSSES, the loss of a softmax, whose slope is p - 1.
    Bound by memory: 14 bytes read and 8 written per element. The target's row is read again from the table: kept
    between the passes it would be one more [N, D].
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
