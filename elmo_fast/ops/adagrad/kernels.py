"""AdaGrad's kernels: updates in place, and sums of squares, all in a fixed order.

Memory bounds them. A dense update moves 20 bytes an element (weight and accumulator read and written, gradient read)
and 2 more where a 16-bit copy is kept; a norm reads 4. A row update moves 16 bytes per element of a distinct row and
4 per element of a given one. There is no arithmetic to speak of, so roots and quotients are the exactly rounded ones.
"""

# mypy: allow-untyped-defs

import triton
import triton.language as tl

# Several tensors share a launch: slot k holds the blocks from f<k> on. These numbers are another model's or batch's
# business, not the code's, so that no kernel is compiled again for them.
_FIRSTS = [f"f{k}" for k in range(1, 8)]
_SIZES = [f"n{k}" for k in range(8)]


@triton.jit
def _slot(block, f1, f2, f3, f4, f5, f6, f7, x0, x1, x2, x3, x4, x5, x6, x7):
    """Of the eight values that of the slot which `block` falls into: a choice of scalars, made once per program."""
    x = tl.where(block >= f1, x1, x0)
    x = tl.where(block >= f2, x2, x)
    x = tl.where(block >= f3, x3, x)
    x = tl.where(block >= f4, x4, x)
    x = tl.where(block >= f5, x5, x)
    x = tl.where(block >= f6, x6, x)
    return tl.where(block >= f7, x7, x)


@triton.jit
def _stepped(weight, sum, gradient, learning_rate):
    sum += gradient * gradient
    return weight - learning_rate * tl.div_rn(gradient, tl.sqrt_rn(sum)), sum


@triton.jit
def _finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def _update_block(w, a, g, c, offsets, n, factor, learning_rate, COPIED: tl.constexpr, MASKED: tl.constexpr):
    inside = offsets < n if MASKED else None
    gradient = tl.load(g + offsets, mask=inside, other=0.0 if MASKED else None) * factor
    sum = tl.load(a + offsets, mask=inside, other=1.0 if MASKED else None)
    weight = tl.load(w + offsets, mask=inside, other=0.0 if MASKED else None)
    weight, sum = _stepped(weight, sum, gradient, learning_rate)
    tl.store(a + offsets, sum, mask=inside)
    tl.store(w + offsets, weight, mask=inside)
    if COPIED:
        tl.store(c + offsets, weight.to(c.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=[*_FIRSTS, *_SIZES])
def update(
    scale, learning_rate, f1, f2, f3, f4, f5, f6, f7,
    n0, n1, n2, n3, n4, n5, n6, n7,
    w0, w1, w2, w3, w4, w5, w6, w7,
    a0, a1, a2, a3, a4, a5, a6, a7,
    g0, g1, g2, g3, g4, g5, g6, g7,
    c0, c1, c2, c3, c4, c5, c6, c7,
    COPIED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """a += (s g)²; w -= lr s g / √a; c = w rounded. One program per BLOCK elements of one of eight tensors.

    Whole blocks go without a mask: one of a size that is no multiple of four would cost the 16-byte accesses.
    """
    factor = 1.0
    if scale is not None:
        factor = tl.load(scale)
        if not _finite(factor):
            return
    block = tl.program_id(0)
    first = _slot(block, f1, f2, f3, f4, f5, f6, f7, 0, f1, f2, f3, f4, f5, f6, f7)
    n = _slot(block, f1, f2, f3, f4, f5, f6, f7, n0, n1, n2, n3, n4, n5, n6, n7)
    w = _slot(block, f1, f2, f3, f4, f5, f6, f7, w0, w1, w2, w3, w4, w5, w6, w7)
    a = _slot(block, f1, f2, f3, f4, f5, f6, f7, a0, a1, a2, a3, a4, a5, a6, a7)
    g = _slot(block, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7)
    c = w
    if COPIED:
        c = _slot(block, f1, f2, f3, f4, f5, f6, f7, c0, c1, c2, c3, c4, c5, c6, c7)
    start = (block - first).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        _update_block(w, a, g, c, offsets, n, factor, learning_rate, COPIED, False)
    else:
        _update_block(w, a, g, c, offsets, n, factor, learning_rate, COPIED, True)


@triton.jit(do_not_specialize=["at", *_FIRSTS, *_SIZES])
def square_sums(
    sums, at, f1, f2, f3, f4, f5, f6, f7,
    n0, n1, n2, n3, n4, n5, n6, n7,
    x0, x1, x2, x3, x4, x5, x6, x7,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """sums[at + block]: the sum of squares of BLOCK elements of one of eight tensors."""
    block = tl.program_id(0)
    first = _slot(block, f1, f2, f3, f4, f5, f6, f7, 0, f1, f2, f3, f4, f5, f6, f7)
    n = _slot(block, f1, f2, f3, f4, f5, f6, f7, n0, n1, n2, n3, n4, n5, n6, n7)
    x = _slot(block, f1, f2, f3, f4, f5, f6, f7, x0, x1, x2, x3, x4, x5, x6, x7)
    start = (block - first).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        values = tl.load(x + offsets)
    else:
        values = tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(sums + at + block, tl.sum(values * values))


@triton.jit(do_not_specialize=["count"])
def total(sums, count, out, BLOCK: tl.constexpr):
    """out[] = the sum of sums[count], in float64 and one order; one program, as the partial sums are few."""
    lanes = tl.arange(0, BLOCK)
    kept = tl.zeros([BLOCK], tl.float64)
    for start in range(0, count, BLOCK):
        kept += tl.load(sums + start + lanes, mask=lanes < count - start, other=0.0).to(tl.float64)
    tl.store(out, tl.sum(kept).to(out.dtype.element_ty))


@triton.jit
def _piece(
    i, id, ids, order, rows, columns, n, D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """The sum [COLUMNS] of the rows of `id` from sorted position i on, up to the next multiple of PIECE."""
    end = tl.minimum(n, (i // PIECE + 1) * PIECE)
    window = i + tl.arange(0, PIECE)
    same = (window < end) & (tl.load(ids + window, mask=window < end, other=-1) == id)
    count = tl.sum(same.to(tl.int32))
    sum = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, count, ROWS):
        nth = start + tl.arange(0, ROWS)
        row = tl.load(order + i + nth, mask=nth < count, other=-1).to(tl.int64)
        inside = ((row >= 0) & (row < n))[:, None] & (columns < D)[None, :]
        sum += tl.sum(tl.load(rows + row[:, None] * D + columns[None, :], mask=inside, other=0.0), 0)
    return sum


@triton.jit
def _is_head(i, id, ids, num_words):
    """Whether position i is the first of its id, and that id a word of the table."""
    before = tl.load(ids + i - 1, mask=i > 0, other=-1)
    return (id >= 0) & (id < num_words) & (before != id)


@triton.jit
def _merged(
    i, id, ids, order, rows, pieces, columns, n,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sum [COLUMNS] of all rows of the segment whose head is at i: its first piece, then the ones summed before."""
    sum = _piece(i, id, ids, order, rows, columns, n, D, PIECE, ROWS, COLUMNS)
    piece = i // PIECE + 1
    more = tl.load(ids + piece * PIECE, mask=piece * PIECE < n, other=-1) == id
    while more:
        nth = piece + tl.arange(0, ROWS)
        same = (nth * PIECE < n) & (tl.load(ids + nth * PIECE, mask=nth * PIECE < n, other=-1) == id)
        inside = same[:, None] & (columns < D)[None, :]
        sum += tl.sum(tl.load(pieces + nth.to(tl.int64)[:, None] * D + columns[None, :], mask=inside, other=0.0), 0)
        piece += ROWS
        more = tl.sum(same.to(tl.int32)) == ROWS
    return sum


@triton.jit(do_not_specialize=["n"])
def sum_pieces(
    ids, order, rows, pieces, n,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """pieces[p] = the sum of the rows from position p PIECE on, where the segment there has begun before.

    So a frequent word (of 40,960 targets one in twenty is the same) is summed by many programs, not by its head's.
    """
    piece = tl.program_id(0)
    i = piece * PIECE
    id = tl.load(ids + i, mask=i < n, other=-1)
    before = tl.load(ids + i - 1, mask=(i > 0) & (i < n), other=-1)
    if (id < 0) | (before != id):
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    sum = _piece(i, id, ids, order, rows, columns, n, D, PIECE, ROWS, COLUMNS)
    tl.store(pieces + piece.to(tl.int64) * D + columns, sum, mask=columns < D)


@triton.jit(do_not_specialize=["n", "num_words"])
def update_rows(
    ids, order, rows, pieces, table, accumulator, scale, learning_rate, n, num_words,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One row of table and accumulator: one program per sorted position, those that head no segment return at once."""
    factor = 1.0
    if scale is not None:
        factor = tl.load(scale)
        if not _finite(factor):
            return
    i = tl.program_id(0)
    id = tl.load(ids + i)
    if not _is_head(i, id, ids, num_words):
        return
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    gradient = factor * _merged(i, id, ids, order, rows, pieces, columns, n, D, PIECE, ROWS, COLUMNS)
    place = id.to(tl.int64) * D + columns
    sum = tl.load(accumulator + place, mask=columns < D, other=1.0)
    weight = tl.load(table + place, mask=columns < D, other=0.0)
    weight, sum = _stepped(weight, sum, gradient, learning_rate)
    tl.store(accumulator + place, sum, mask=columns < D)
    tl.store(table + place, weight, mask=columns < D)


@triton.jit(do_not_specialize=["n", "num_words"])
def merged_square_sums(
    ids, order, rows, pieces, sums, n, num_words,
    D: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """sums[chunk, i]: the sum of squares of one chunk of columns of the merged row whose head is at i, else 0."""
    i, chunk = tl.program_id(0), tl.program_id(1)
    at = sums + chunk.to(tl.int64) * n + i
    id = tl.load(ids + i)
    if not _is_head(i, id, ids, num_words):
        tl.store(at, 0.0)
        return
    columns = chunk * COLUMNS + tl.arange(0, COLUMNS)
    sum = _merged(i, id, ids, order, rows, pieces, columns, n, D, PIECE, ROWS, COLUMNS)
    tl.store(at, tl.sum(sum * sum))
