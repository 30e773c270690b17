"""Kernels between the user's order (row, position) and step order (step, row sorted by falling length).

Position p of a row of length n is step p, or n - 1 - p where the direction walks backwards; past n there is no step.
Where order is None, rows are in the same order on both sides.
"""

import triton
import triton.language as tl


@triton.jit
def clipped(x, bound):
    """torch.clamp(x, -bound, bound): NaN stays NaN, which minimum and maximum would hide. A bound of None: x."""
    if bound is None:
        found = x
    else:
        found = tl.where(x > bound, bound, tl.where(x < -bound, -bound, x))
    return found


@triton.jit
def original(order, row):
    """The row of the batch that is at place `row` in step order."""
    if order is None:
        found = row
    else:
        found = tl.load(order + row)
    return found


@triton.jit
def arrange(
    x, order, lengths, scale, out, batch, width, stride_b, stride_t, stride_i,
    REVERSE: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[step, row] = x[order[row], position] (times scale), 0 where the row has no such step; a program per row."""
    index = tl.program_id(0).to(tl.int64)
    step, row = index // batch, index % batch
    length = tl.load(lengths + row)
    position = length - 1 - step if REVERSE else step
    source = original(order, row) * stride_b + position * stride_t
    present = tl.where(step < length, width, 0)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(x + source + column.to(tl.int64) * stride_i, mask=column < present, other=0.0)
        if SCALED:
            value = value * tl.load(scale)
        tl.store(out + index * width + column, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def put_back(
    steps, x, order, lengths, masks, scale, out, batch, time, width, stride_b, stride_t, stride_i, bound,
    REVERSE: tl.constexpr, MASKED: tl.constexpr, RESIDUAL: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[order[row], position] = clip(steps[step, row]) (times mask, over scale) + x there; 0 past the length."""
    index = tl.program_id(0).to(tl.int64)
    position, row = index // batch, index % batch
    length = tl.load(lengths + row)
    step = length - 1 - position if REVERSE else position
    target = original(order, row)
    present = tl.where(position < length, width, 0)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < width
        value = tl.load(steps + (step * batch + row) * width + column, mask=column < present, other=0.0).to(tl.float32)
        value = clipped(value, bound)
        if MASKED:
            value = value * tl.load(masks + row * width + column, mask=inside, other=0.0)
        if SCALED:
            value = value / tl.load(scale)
        if RESIDUAL:
            offset = target * stride_b + position * stride_t + column.to(tl.int64) * stride_i
            value += tl.load(x + offset, mask=column < present, other=0.0)
        tl.store(out + (target * time + position) * width + column, value, mask=inside)


@triton.jit
def last(
    steps, start, order, lengths, masks, out, batch, width, slots, first, bound,
    STARTED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[order[row]] = clip(what the row's last step left), or where it started from if it has no step.

    Step s lies in slot (s + first) % slots of `steps` [R, slots, batch, width].
    """
    row, direction = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + row)
    target = direction * batch + original(order, row)
    slot = (tl.maximum(length, 1) - 1 + first) % slots
    ran = tl.where(length > 0, width, 0)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        source = ((direction * slots + slot) * batch + row) * width + column
        value = clipped(tl.load(steps + source, mask=column < ran, other=0.0), bound)
        if MASKED:
            value = value * tl.load(masks + (direction * batch + row) * width + column, mask=inside, other=0.0)
        if STARTED:
            held = tl.load(start + target * width + column, mask=inside, other=0.0)
            value = tl.where(length > 0, value, held)
        tl.store(out + target * width + column, value, mask=inside)
