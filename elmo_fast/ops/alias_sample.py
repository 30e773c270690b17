"""alias_sample: words sampled with replacement from any distribution, at the same cost for every distribution."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops._checks import check_dtype, check_shapes, described
from elmo_fast.ops._sampling import check_key, drawn_to, uniforms


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
    shares = raised * (len(raised) / total)
    return _pairs(shares)


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


def _pairs(shares: Tensor) -> AliasTable:
    """Pair words by Vose's method: each word with less than its share of the table is topped up by one with more."""
    left = shares.tolist()
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
