"""The cost of one training step on N processes, in formulas (docs/scaling.md)."""

import math
from typing import NamedTuple

import numpy as np

from elmo_fast.pretrain.step.tree_of_processes import BUCKET


class Shape(NamedTuple):
    """What a process computes. rows: B; unroll_steps: T; projection: D; dense: weights outside the softmax table;
    words: V; samples: S per direction."""

    rows: int
    unroll_steps: int
    projection: int
    dense: int
    words: int
    samples: int


# The original architecture over the 1-billion-word corpus's vocabulary, 1,024 rows a GPU.
ORIGINAL = Shape(rows=1024, unroll_steps=20, projection=512, dense=93_600_864, words=793_471, samples=8192)

MEASURED = Shape(rows=24, unroll_steps=5, projection=64, dense=0, words=20_000, samples=512)


class Cluster(NamedTuple):
    """The network, from data sheets.

    inside: bytes per second that a GPU sends inside its machine (NVLink 4: 450 GB/s each way); between: that one of a
    machine's network cards sends (400 Gb/s), one card a GPU; reached: the share of either that is had; hop: seconds
    from one process to the next; machine: GPUs of one; overlapped: the share of the compute during which dense
    gradients are already being exchanged (the backward pass after its first bucket).
    """

    inside: float = 450e9
    between: float = 50e9
    reached: float = 0.8
    hop: float = 10e-6
    machine: int = 8
    overlapped: float = 0.5


def log_uniform(words: int) -> np.ndarray:
    """The sampler's chance of each id, in one try."""
    ids = np.arange(words)
    return np.log((ids + 2) / (ids + 1)) / math.log(words + 1)


def zipf(words: int) -> np.ndarray:
    """The chance of each id in running text: falling with its rank, s = 1."""
    chance = 1 / np.arange(1, words + 1)
    return chance / chance.sum()


def union(shape: Shape, processes: int) -> float:
    """Expected distinct ids of a step in all processes: two shared samples, and every target of both directions."""
    chance = log_uniform(shape.words)
    tries = _tries(chance, shape.samples)
    missed = (1 - chance) ** (2 * tries) * (1 - zipf(shape.words)) ** (2 * processes * shape.rows * shape.unroll_steps)
    return float((1 - missed).sum())


def _tries(chance: np.ndarray, distinct: int) -> float:
    low, high = float(distinct), 1e9
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - (1 - chance) ** middle).sum() < distinct else (low, middle)
    return low


def exchanged(shape: Shape, processes: int, *, union: float, longest: float) -> dict[str, float]:
    """Bytes that one process sends in a step, by what for.

    A ring adds up n numbers by 2 (N - 1) / N · n sent per process; it gathers N parts of n by (N - 1) · n. union: ids
    used by any process; longest: ids of the process that uses most, 8 bytes each. The table and its bias add up their
    rows of the union.
    """
    ring, others = 2 * (processes - 1) / processes, processes - 1
    return {
        "dense": ring * 4 * shape.dense,
        "ids": others * 8 * (longest + 1),
        "rows": ring * 4 * union * (shape.projection + 1),
    }


def step_time(shape: Shape, cluster: Cluster, gpus: int, rate: float) -> dict[str, object]:
    """Milliseconds of one step on so many GPUs, each of which alone would reach `rate` tokens/s (an assumption).

    Dense gradients are exchanged during the backward pass; the table's rows after it, as are what is left of the
    dense ones. Rings that leave a machine run side by side through all its cards; small numbers go up and down a tree.
    """
    tokens = shape.rows * shape.unroll_steps
    compute = tokens / rate
    used = union(shape, gpus)
    mine = union(shape, 1)
    sent = exchanged(shape, gpus, union=used, longest=mine)
    link, latency = _link(cluster, gpus), _latency(cluster, gpus)
    dense = sent["dense"] / link + latency
    rows = (sent["ids"] + sent["rows"]) / link + 4 * latency
    hidden = min(dense, cluster.overlapped * compute)
    step = compute + dense - hidden + rows
    costs = {"compute": compute, "rows of the table": rows, "dense gradients": dense - hidden}
    # What takes most of what compute does not: the first thing to mend.
    exchange = {name: cost for name, cost in costs.items() if name != "compute"}
    worst = max(exchange, key=lambda name: exchange[name])
    return {
        "rate": rate / 1e6, "gpus": gpus, "union": used / 1e6, "compute": 1e3 * compute, "dense": 1e3 * dense,
        "hidden": 1e3 * hidden, "rows": 1e3 * rows, "step": 1e3 * step, "tokens": gpus * tokens / step / 1e6,
        "efficiency": compute / step, "bottleneck": worst if exchange[worst] > 0.05 * compute else "none above 5 %",
    }  # fmt: skip


def _link(cluster: Cluster, gpus: int) -> float:
    """Bytes per second of a ring, which leaves a machine through all its cards."""
    cards = cluster.machine * cluster.between
    return cluster.reached * (cluster.inside if gpus <= cluster.machine else min(cluster.inside, cards))


def _latency(cluster: Cluster, gpus: int) -> float:
    """Seconds of an exchange of few numbers, up and down a tree."""
    return 2 * math.ceil(math.log2(gpus)) * cluster.hop


def exact_step_time(shape: Shape, cluster: Cluster, gpus: int, rate: float) -> dict[str, float]:
    """Milliseconds of a step with one exact shard a GPU, beside `step_time`: nothing is hidden behind the compute.

    Gradients are added within a machine first. Slices go to all others at once; the sums go around in a ring. The
    machine's part of a slice then does the same between machines, through one card a GPU.
    """
    plain = step_time(shape, cluster, gpus, rate)
    used, mine = union(shape, gpus), union(shape, 1)
    sent = exchanged(shape, gpus, union=used, longest=mine)
    compute = shape.rows * shape.unroll_steps / rate
    inside = min(gpus, cluster.machine)
    machines = gpus // inside
    hops = cluster.hop * (inside + machines * (machines > 1))

    def added(numbers: float, messages: int) -> float:
        within = 2 * (inside - 1) / inside * 4 * numbers / (cluster.reached * cluster.inside)
        between = 2 * (machines - 1) / machines * 4 * numbers / inside / (cluster.reached * cluster.between)
        return within + between + messages * hops

    ids = sent["ids"] / _link(cluster, gpus) + 2 * _latency(cluster, gpus)
    dense = added(shape.dense, math.ceil(shape.dense / BUCKET))
    rows = ids + added(used * (shape.projection + 1), 2)  # the table's and the bias's
    step, without = compute + dense + rows, float(plain["step"]) / 1e3  # type: ignore[arg-type]
    return {
        "rate": rate / 1e6, "gpus": gpus, "compute": 1e3 * compute, "dense": 1e3 * dense, "rows": 1e3 * rows,
        "step": 1e3 * step, "without": 1e3 * without, "slower": step / without - 1,
    }  # fmt: skip
