"""How tensor cores add: products exact, a few at a time with the sum so far, aligned to the largest, the rest cut off.

Sources: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021); Khattak, Mikaitis,
"Accurate models of NVIDIA tensor cores" (2025). The fewest that any of them was found to keep: 24 bits, of 4 products.
"""

import numpy as np

from tests.ptx.values import rounded_to_tf32

GROUP, BITS = 4, 24


def truncated(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """float32: c [*, M, N] + a [*, M, K] · b [*, K, N], of which the products are exact."""
    total = c.astype(np.float64)
    for first in range(0, a.shape[-1], GROUP):
        of = slice(first, first + GROUP)
        terms = a[..., :, of, None].astype(np.float64) * b[..., None, of, :].astype(np.float64)
        terms = np.concatenate([terms, total[..., :, None, :]], -2)
        largest = np.abs(terms).max(-2, keepdims=True)
        unit = np.exp2(np.frexp(np.where(largest > 0, largest, 1.0))[1] - BITS)
        total = toward_zero((np.trunc(terms / unit) * unit).sum(-2))
    return total.astype(np.float32)


def toward_zero(x: np.ndarray) -> np.ndarray:
    """float64 cut off to float32's digits."""
    rounded = x.astype(np.float32)
    return np.where(np.abs(rounded) > np.abs(x), np.nextafter(rounded, np.float32(0)), rounded).astype(np.float64)


def tf32x3(a: np.ndarray, b: np.ndarray, depth: int) -> np.ndarray:
    """a [M, K] · b [K, N] as Triton's tl.dot has it: the small products, then the large ones, `depth` at a time."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for first in range(0, a.shape[1], depth):
        whole = a[:, first : first + depth], b[first : first + depth]
        large = [rounded_to_tf32(x) for x in whole]
        small = [rounded_to_tf32(x - y) for x, y in zip(whole, large, strict=True)]
        part = np.zeros_like(total)
        for left, right in ((small[0], large[1]), (large[0], small[1]), (large[0], large[1])):
            part = truncated(left, right, part)
        total += part
    return total
