"""unique_rows, padded_unique_rows, gather_rows, gather_runs: any ids, indices and runs, some of them out of range."""

import random

import torch

from elmo_fast.ops import gather_rows, gather_runs, padded_unique_rows, unique_rows
from tests.fuzz.judge import Wrong, may_refuse
from tests.fuzz.tensors import compare, floating, kind, numbers, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    rng.choice((_unique, _gather, _runs))(rng)


def _unique(rng):
    rows, slots = size(rng, 200), size(rng, 12)
    ids = whole(rng, (rows, slots), rng.choice((2, 3, 300, 2**31 - 1)), dtype=rng.choice((torch.int64, torch.int32)))
    with may_refuse():
        unique, inverse = unique_rows(ids, backend="native")
        other, _ = unique_rows(ids, backend="reference")
        padded, again, count = padded_unique_rows(ids, backend="native")
        if not torch.equal(unique[inverse], ids) or not torch.equal(padded[again], ids):
            raise Wrong("unique_rows: unique[inverse] is not ids")
        if (
            sorted(unique.tolist()) != sorted(other.tolist())
            or int(count) != len(unique)
            or padded[len(unique) :].any()
        ):
            raise Wrong("unique_rows: other rows than the reference's")


def _gather(rng):
    rows, width, count = size(rng, 40), size(rng, 30), size(rng, 80)
    dtype = floating(rng, "unique_rows")
    inverse = whole(rng, (count,), rows)
    if rng.random() < 0.1 and count:
        inverse = inverse.clone()
        inverse[rng.randrange(count)] = rng.choice((-1, rows, rows + 1, -(2**63), 2**63 - 1))

    def call(t, backend, precision):
        yield gather_rows(t[0], inverse, backend=backend)

    table = numbers(rng, (rows, width), kind(rng), dtype=dtype)
    outside = bool(count and (int(inverse.min()) < 0 or int(inverse.max()) >= rows))
    if outside:
        for backend in ("native", "reference"):
            with may_refuse(IndexError):
                gather_rows(table, inverse, backend=backend)
                raise Wrong(f"gather_rows: an index outside the table is no IndexError ({backend})")
        return
    compare("gather_rows", call, [table], rng)


def _runs(rng):
    parts = [whole(rng, (size(rng, 60),), 1000, dtype=torch.int32) for _ in range(rng.choice((1, 1, 2, 4)))]
    runs = size(rng, 20)
    total = sum(map(len, parts))
    first, lengths = whole(rng, (runs,), total + 1), whole(rng, (runs,), 4)
    if rng.random() < 0.3 and runs:
        lengths = lengths.clone()
        lengths[rng.randrange(runs)] = rng.choice((-1, 2**62, 2**63 - 1, -(2**63), 50, 2**32))
    if rng.random() < 0.2 and runs:
        first = first.clone()
        first[rng.randrange(runs)] = rng.choice((-1, 2**63 - 1, -(2**63), total))
    upward, actual = rng.randrange(runs + 1), []
    for backend in ("native", "reference"):
        with may_refuse(IndexError):
            actual.append(gather_runs(parts, first, lengths, upward, backend=backend).tolist())
    if len(actual) == 1 or (actual and actual[0] != actual[1]):
        raise Wrong(f"gather_runs: {len(actual)} backends of 2 served, or they differ")
