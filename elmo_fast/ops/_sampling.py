"""Samples: Philox4x32-10, the counter-based generator of all of them, words by an alias table, and dropout.

Philox (in C++: csrc/common/philox.h): Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import _triton
from elmo_fast.ops._checks import check_dtype, check_shapes, described

LOW = 0xFFFFFFFF
LANES = 1024  # of scalar_mix: elements that one of Philox's four results serves, side by side
MAX_TRIES = 2**31 - 1  # of log_uniform_sample
# Of log_uniform_sample: the term inside the logarithm of the expected counts.
CORRECTIONS = {"tensorflow": 0.0, "allennlp": 1e-13, "allennlp-0.9": 1e-7}


def _wide(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and low 32 bits of a * b; the product wraps in int64, but its bits are right."""
    product = b * a
    return (product >> 32) & LOW, product & LOW


def philox4x32(key: Sequence[Tensor | int], counter: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute four results from two words of key and four of counter, all below 2^32, tensors in int64."""
    (k, m), (a, b, c, d) = key, counter
    for _ in range(10):
        (high_c, low_c), (high_a, low_a) = _wide(0xCD9E8D57, c), _wide(0xD2511F53, a)
        a, b, c, d = high_c ^ b ^ k, low_c, high_a ^ d ^ m, low_a
        k, m = (k + 0x9E3779B9) & LOW, (m + 0xBB67AE85) & LOW
    return a, b, c, d


def uniforms(seed: int, offset: int, first: int, blocks: int) -> Tensor:
    """Generate 2·blocks numbers in [0, 1) of 53 bits.

    Block j is Philox of counter (j, offset) and key `seed`, low words first.
    """
    index = torch.arange(first, first + blocks, device="cpu")
    counter = (index & LOW, index >> 32, torch.full_like(index, offset & LOW), torch.full_like(index, offset >> 32))
    a, b, c, d = philox4x32((seed & LOW, seed >> 32), counter)
    bits = torch.stack([a | b << 32, c | d << 32], dim=1).flatten()
    return ((bits >> 11) & (2**53 - 1)).double() * 2.0**-53


# Set in the last counter word of dropout's draws, which no sampler's offset reaches.
DROPOUT = 0x80000000


def check_key(op: str, **numbers: int) -> None:
    """Raise ElmoFastError unless seed and offset are in the range of the generator."""
    for name, value in numbers.items():
        if not 0 <= value < 2**63:
            raise ElmoFastError(f"{op}: {name} must be from 0 to 2^63 - 1; got {value}")


def drawn_to(op: str, samples: Sequence[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    """Copy what `op` sampled on the CPU to a device without waiting, to a GPU through pinned memory.

    Raises ElmoFastError while a CUDA graph is being captured, because each replay would copy the same numbers.
    """
    if device.type != "cuda":
        return tuple(tensor.to(device) for tensor in samples)
    if not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing():
        raise ElmoFastError(
            f"{op}: a CUDA graph cannot capture sampling on the CPU, as every replay would repeat the same sample; "
            "sample before the capture, or use a GPU backend if the op has one"
        )
    return tuple(tensor.pin_memory().to(device, non_blocking=True) for tensor in samples)


class AliasTable(NamedTuple):
    """Distribution over V words: column k gives k with probability thresholds[k], else aliases[k]."""

    thresholds: Tensor
    """probability that a column gives its own word, [V] float64, on the CPU"""
    aliases: Tensor
    """word that a column gives otherwise, [V] int64, on the CPU"""


def alias_table(weights: Tensor, *, power: float = 1.0) -> AliasTable:
    """Build the alias table of the distribution P(k) = w_k^power / sum_v w_v^power.

    power=0.75 with the words' counts as weights is word2vec's noise distribution. A word of weight 0 is never sampled.

    Args:
        weights: w, [V], 0 or more, not all 0; integers or floating-point, on the CPU
        power: exponent of the weights (computed in float64)

    Raises:
        ElmoFastError: weights of wrong shape or device, negative or not finite, none above 0, or not finite when
            raised to `power`.

    Source: Vose 1991, A linear algorithm for generating random numbers with a given distribution; Walker 1977.
    """
    op = "alias_table"
    check_shapes(op, ("weights", weights, "V"))
    if weights.device.type != "cpu":
        raise ElmoFastError(f"{op}: weights must be on the CPU; got {described(weights)}")
    if not 1 <= len(weights) < 2**31:
        raise ElmoFastError(f"{op}: weights must hold from 1 to 2^31 - 1 words; got {len(weights)}")
    double = weights.detach().to(torch.float64)
    if not bool(torch.isfinite(double).all()) or bool((double < 0).any()):
        low, high = (float(bound) for bound in double.aminmax())
        raise ElmoFastError(f"{op}: weights must be finite and not negative; got values from {low} to {high}")
    raised = torch.where(double > 0, double.pow(power), double)
    total = float(raised.sum())
    if not 0 < total < float("inf"):
        raise ElmoFastError(f"{op}: the sum of weights^{power} must be above 0 and finite; got {total}")
    # Vose's method: a word with less than its share of the table is topped up by one with more.
    left = (raised * (len(raised) / total)).tolist()
    thresholds, aliases = [1.0] * len(left), list(range(len(left)))
    less = [k for k, share in enumerate(left) if share < 1]
    more = [k for k, share in enumerate(left) if share >= 1]
    while less and more:
        small, large = less.pop(), more[-1]
        thresholds[small], aliases[small] = left[small], large
        left[large] = (left[large] + left[small]) - 1.0
        if left[large] < 1:
            less.append(more.pop())
    chances = torch.tensor(thresholds, dtype=torch.float64, device="cpu")
    return AliasTable(chances, torch.tensor(aliases, dtype=torch.int64, device="cpu"))


def alias_sample(
    num_samples: int,
    table: AliasTable,
    *,
    seed: int,
    offset: int = 0,
    device: torch.device | str | None = None,
) -> Tensor:
    """Sample S words with replacement from the distribution of an alias table.

        k = floor(U V),    id = k if U' < thresholds_k else aliases_k

    U, U' are 53-bit numbers of the counter-based generator Philox4x32-10: the block of key `seed` and counter (i,
    `offset`) gives sample i. So equal (seed, offset) give equal ids on every machine, and a longer sample begins with
    the ids of a shorter one. Use a new offset for each sample.

    Args:
        num_samples: S, at least 1
        table: from `alias_table`
        seed: 0 to 2^63 - 1
        offset: as `seed`
        device: device of the returned ids; None: the CPU. They are always sampled on the CPU; copying waits for no GPU

    Returns:
        ids: [S] int64

    Raises:
        ElmoFastError: an argument out of its range, a table of wrong shapes or dtypes, or a CUDA graph being captured.

    Source: Walker 1977, An efficient method for generating discrete random variables with general distributions;
    Salmon et al. 2011 (Philox).
    """
    op = "alias_sample"
    thresholds, aliases = table
    check_shapes(op, ("table.thresholds", thresholds, "V"), ("table.aliases", aliases, "V"))
    check_dtype(op, "table.thresholds", thresholds, torch.float64)
    check_dtype(op, "table.aliases", aliases, torch.int64)
    if thresholds.device.type != "cpu" or aliases.device.type != "cpu":
        raise ElmoFastError(f"{op}: the table must be on the CPU; got {described(thresholds)}")
    if not 1 <= len(thresholds) < 2**31:
        raise ElmoFastError(f"{op}: the table must hold from 1 to 2^31 - 1 words; got {len(thresholds)}")
    if num_samples < 1:
        raise ElmoFastError(f"{op}: num_samples must be at least 1; got {num_samples}")
    check_key(op, seed=seed, offset=offset)
    place, chance = uniforms(seed, offset, 0, num_samples).view(-1, 2).unbind(1)
    column = (place * len(thresholds)).long()
    ids = torch.where(chance < thresholds[column], column, aliases[column])
    return drawn_to(op, [ids], torch.device("cpu" if device is None else device))[0]


def threshold(probability: float) -> int:
    """Return the number below which 32 random bits drop an element."""
    return min(round(probability * 2**32), LOW)


def dropout_factors(
    probability: float, seed: int, offset: Tensor, first_row: int, shape: tuple[int, int, int], *, plain: bool = False
) -> Tensor:
    """Sample by what dropout multiplies each element: 0 with probability p, otherwise 1 / (1 - p).

    Nothing is read on the host, and a CUDA graph may hold the call: a replay samples by the offset that it finds. The
    numbers are a function of the arguments: word i % 4 of Philox block (plane · ceil(N / 4) + i // 4, first_row + row,
    offset), key `seed`, below p · 2^32 drops element i of a row.

    Args:
        probability: p, 0 < p < 1
        seed: 0 to 2^63 - 1
        offset: [] or [1] int64, on the device that samples
        first_row: number of the first row
        shape: (planes, rows, N)
        plain: in plain torch, even where Triton has a kernel

    Returns:
        [planes, rows, N] float32
    """
    limit, scale = threshold(probability), 1 / (1 - probability)
    if has_kernel(offset.device) and not plain:
        from elmo_fast.ops._kernels import launch_dropout

        return launch_dropout(limit, scale, seed, offset, first_row, shape)
    planes, rows, width = shape
    plane, row, block = (torch.arange(count, device=offset.device) for count in (planes, rows, _triton.cdiv(width, 4)))
    first = (plane[:, None] * len(block) + block)[:, None, :].expand(planes, rows, -1)
    second, at = (first_row + row)[None, :, None].expand_as(first), offset.reshape(1, 1, 1).expand_as(first)
    counter = (first & LOW, second & LOW, at & LOW, (at >> 32) | DROPOUT)
    bits = torch.stack(philox4x32((seed & LOW, seed >> 32), counter), dim=-1).flatten(2)[:, :, :width]
    return (bits >= limit).to(torch.float32) * scale


def has_kernel(device: torch.device) -> bool:
    """Return whether Triton samples on this device."""
    return _triton.unsupported(device, torch.float32, "float32") is None
