"""log_uniform_sample in Triton: one block samples in waves, in the order of the stream.

Every try enters its number at its word by a minimum, so that a word keeps its first try; the tries that are first, in
their order, are the sample. A word of an earlier wave has a lower number already, so waves need nothing between them.

The exponential is csrc/common/philox.h's, whose every operation is rounded once and whose fma are written out: a GPU
samples what a CPU samples. Triton's interpreter has no fma: there a word differs once in 10^11 tries.
"""

import math
import struct
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmo_fast.ops._sampling import MAX_TRIES
from elmo_fast.ops._triton import implement, launch

WAVE = 2048
ROUNDING = tl.constexpr(1.5 * 2**52)  # added to a number, it leaves a whole number in the last bits
LOG2E = tl.constexpr(float.fromhex("0x1.71547652b82fep+0"))
MINUS_LN2 = tl.constexpr(float.fromhex("-0x1.62e42feep-1"))
REST_OF_LN2 = tl.constexpr(float.fromhex("-0x1.a39ef35793c76p-33"))
TERMS = tuple(1 / math.factorial(n) for n in range(13, 1, -1))  # of e^r, from r^13 down to r^2


@triton.jit
def _like(x, value: tl.constexpr):
    """Return a number in float64, to which `tl.fma` does not convert it."""
    return tl.full(x.shape, value, tl.float64)


@triton.jit
def _exp(x, TERMS: tl.constexpr):
    """Compute exp_of_draw of csrc/common/philox.h."""
    k = tl.fma(x, _like(x, LOG2E), _like(x, ROUNDING)) - ROUNDING
    high = tl.fma(k, _like(x, MINUS_LN2), x)
    r = tl.fma(k, _like(x, REST_OF_LN2), high)
    rest = tl.fma(k, _like(x, REST_OF_LN2), high - r)
    p = _like(x, TERMS[0])
    for i in tl.static_range(1, len(TERMS)):
        p = tl.fma(p, r, _like(x, TERMS[i]))
    sum = r + 1.0
    lost = (1.0 - sum) + r
    y = sum + tl.fma(r * r, p, lost + rest)
    return y * (tl.full(k.shape, 1, tl.int64) << k.to(tl.int64)).to(tl.float64)


@triton.jit(do_not_specialize=["seed", "num_samples", "num_words", "log_range", "limit"])
def log_uniform_sample_kernel(
    first,
    ids,
    tries,
    offset,
    seed,
    num_samples,
    num_words,
    log_range,
    limit,
    TERMS: tl.constexpr,
    WAVE: tl.constexpr,
):
    """Sample ids [S] and count the tries; -1 of them, and ids 0, if the sample is incomplete at try `limit`.

    first [V] int32, at least `limit` everywhere; log_range: log1p(V), the bits of a float64. Bound by the latency of
    two accesses to L2 per wave and by 25 float64 operations per try, on one multiprocessor beside other kernels.
    """
    at = tl.load(offset).to(tl.uint64)
    log_range = (tl.zeros((1,), dtype=tl.int64) + log_range).to(tl.float64, bitcast=True)
    block, within = tl.arange(0, WAVE // 2), tl.arange(0, WAVE)
    found = tl.zeros((), dtype=tl.int32)
    start = tl.zeros((), dtype=tl.int64)
    while (found < num_samples) & (start < limit):
        index = (start // 2 + block).to(tl.uint64)
        none = tl.zeros((WAVE // 2,), dtype=tl.uint32)
        a, b, c, d = tl.philox(
            seed, index.to(tl.uint32), (index >> 32).to(tl.uint32), none + at.to(tl.uint32),
            none + (at >> 32).to(tl.uint32),
        )  # fmt: skip
        low, high = tl.reshape(tl.join(a, c), (WAVE,)), tl.reshape(tl.join(b, d), (WAVE,))
        bits = (high.to(tl.uint64) << 32 | low.to(tl.uint64)) >> 11
        u = bits.to(tl.int64).to(tl.float64) * 2.0**-53
        word = (_exp(u * log_range, TERMS).to(tl.int64) - 1).to(tl.uint32) % num_words.to(tl.uint32)
        entry, number = first + word.to(tl.int64), start + within
        counts = number + 1 < limit
        tl.atomic_min(entry, number.to(tl.int32), mask=counts, sem="relaxed")
        tl.debug_barrier()
        new = counts & (tl.load(entry, mask=counts, other=0, cache_modifier=".cg") == number)
        place = found + tl.cumsum(new.to(tl.int32)) - 1
        kept = new & (place < num_samples)
        tl.store(ids + place, word.to(tl.int64), mask=kept)
        tl.store(tries + within * 0, number + 1, mask=kept & (place == num_samples - 1))
        found += tl.sum(new.to(tl.int32))
        start += WAVE
    if found < num_samples:
        tl.store(tries, -1)
        for i in range(found, num_samples, WAVE):
            tl.store(ids + i + within, tl.zeros((WAVE,), dtype=tl.int64), mask=i + within < num_samples)


def sample(a: Any, limit: int = MAX_TRIES) -> tuple[Tensor, Tensor]:
    """Return ids [S] and the number of tries, which is -1 if `limit` tries are not enough."""
    first = torch.full((a.num_words,), MAX_TRIES, dtype=torch.int32, device=a.offset.device)
    ids, tries = a.offset.new_empty(a.num_samples), a.offset.new_empty(())
    (log_range,) = struct.unpack("q", struct.pack("d", math.log1p(a.num_words)))
    launch(
        log_uniform_sample_kernel, (1,), first, ids, tries, a.offset, a.seed, a.num_samples, a.num_words, log_range,
        limit, TERMS=TERMS, WAVE=WAVE, num_warps=16,
    )  # fmt: skip
    return ids, tries


implement("log_uniform_sample", sample)
