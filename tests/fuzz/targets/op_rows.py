"""unique_rows, ordered_unique_rows, gather_rows, gather_runs: any ids, indices and runs, some of them out of range."""

import random

import torch

from elmo_fast.ops import gather_rows, gather_runs, ordered_unique_rows, unique_rows
from tests.fuzz.judge import Wrong, may_refuse
from tests.fuzz.tensors import kind, numbers, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    rng.choice((_unique, _gather, _runs))(rng)


def _unique(rng):
    rows, slots = size(rng, 200), size(rng, 12)
    ids = whole(rng, (rows, slots), rng.choice((2, 3, 300, 2**31 - 1)), dtype=rng.choice((torch.int64, torch.int32)))
    with may_refuse():
        unique, inverse = unique_rows(ids)
        padded, again, count, _ = ordered_unique_rows(ids)
        if not torch.equal(unique[inverse], ids) or not torch.equal(padded[again], ids):
            raise Wrong("unique_rows: unique[inverse] is not ids")
        distinct = list(dict.fromkeys(map(tuple, ids.tolist())))
        if [*map(tuple, unique.tolist())] != distinct or int(count) != len(unique) or padded[len(unique) :].any():
            raise Wrong("unique_rows: other rows than those that occur, or in a different order")


def _gather(rng):
    rows, width, count = size(rng, 40), size(rng, 30), size(rng, 80)
    inverse = whole(rng, (count,), rows)
    if rng.random() < 0.1 and count:
        inverse = inverse.clone()
        inverse[rng.randrange(count)] = rng.choice((-1, rows, rows + 1, -(2**63), 2**63 - 1))
    table = numbers(rng, (rows, width), kind(rng))
    outside = bool(count and (int(inverse.min()) < 0 or int(inverse.max()) >= rows))
    if outside:
        with may_refuse(IndexError):
            gather_rows(table, inverse)
            raise Wrong("gather_rows: an index outside the table is no IndexError")
        return
    with may_refuse():
        if not torch.equal(gather_rows(table, inverse).nan_to_num(7), table[inverse].nan_to_num(7)):
            raise Wrong("gather_rows: other rows than those of the table")


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
    upward, everything = rng.randrange(runs + 1), [number for part in parts for number in part.tolist()]
    with may_refuse(IndexError):
        actual = gather_runs(parts, first, lengths, upward).tolist()
        steps = [1 if run < upward else -1 for run in range(runs)]
        every = zip(first.tolist(), lengths.tolist(), steps, strict=True)
        if actual != [everything[place + step * i] for place, length, step in every for i in range(length)]:
            raise Wrong("gather_runs: other numbers than those of the runs")
