"""Philox4x32-10 in numpy, the counter-based generator of every draw made on the CPU (csrc/common/philox.h: in C++)."""

import numpy as np
import numpy.typing as npt

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter: npt.NDArray[np.uint64], key: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """Philox4x32-10 of counters [n, 4] under one key, 32-bit words held in 64 (Salmon et al. 2011, section 3.3)."""
    c0, c1, c2, c3 = counter.T
    k0, k1 = key
    shift = np.uint64(32)
    for _ in range(10):
        p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & LOW, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & LOW
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def uniforms(seed: int, offset: int, first: int, blocks: int) -> npt.NDArray[np.float64]:
    """2·blocks numbers in [0, 1) of 53 bits: block j is Philox of counter (j, offset), key `seed`, low words first."""
    counter = np.empty((blocks, 4), dtype=np.uint64)
    index = np.arange(first, first + blocks, dtype=np.uint64)
    counter[:, 0], counter[:, 1] = index & LOW, index >> np.uint64(32)
    counter[:, 2], counter[:, 3] = offset & 0xFFFFFFFF, offset >> 32
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    bits = words[:, 0::2] | (words[:, 1::2] << np.uint64(32))
    return (bits >> np.uint64(11)).astype(np.float64).reshape(-1) * 2.0**-53
