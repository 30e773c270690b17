"""Blocks of one launch that wait for each other, at counters in global memory: all must be resident (docs/gpu.md)."""

import triton
import triton.language as tl


@triton.jit
def arrive(counter, ok):
    """Counts this block in, after all its threads' stores. A block that has given up counts itself in no more."""
    tl.debug_barrier()
    if ok:
        tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def wait(counter, target, polls, ok):
    """Whether `counter` came to `target` within `polls` looks at it; False at once for a block that has given up."""
    seen = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    left = tl.where(ok, polls, 0)
    while (seen < target) & (left > 0):
        seen = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
        left -= 1
    tl.debug_barrier()
    return ok & (seen >= target)


@triton.jit
def leave_part(
    acc, parts, arrived, turn, polls, part, at, within, stride, SPLIT: tl.constexpr, SPREAD: tl.constexpr
):  # fmt: skip
    """(first, last, ok): a tile's sum has SPLIT parts and as many shares of rows; which of these this block adds up.

    SPREAD: blocks wait for each other, for the `turn`-th time at this counter, and each adds one share; ok is false for
    a block that gave up. Otherwise none waits: the last to arrive adds all shares and clears the counter. Every part is
    written before its block counts (`arrive`; acq_rel), and read past the L1, which is not coherent (`sum_of_parts`).
    """
    tl.store(parts + part * stride + at, acc, mask=within)
    ok = True
    if SPREAD:
        arrive(arrived, ok)
        ok = wait(arrived, turn * SPLIT, polls, ok)
        first, last = part, part + 1
    else:
        tl.debug_barrier()
        is_last = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu") == SPLIT - 1
        tl.debug_barrier()
        tl.store(arrived, 0, mask=is_last)
        first, last = 0, tl.where(is_last, SPLIT, 0)
    return first, last, ok


@triton.jit
def sum_of_parts(parts, at, inside, stride, ok, SPLIT: tl.constexpr):
    """The parts of a share in their order, whoever adds them; NaN where ok is false."""
    total = tl.zeros(at.shape, dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * stride + at, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.where(ok, total, float("nan"))
