"""log_uniform_sample, alias_table, alias_sample, huffman_tree: any counts, laws and seeds; bit by bit the same."""

import random

import torch

from elmo_fast.errors import ElmoFastError
from elmo_fast.ops import alias_sample, alias_table, expected_counts, huffman_tree, log_uniform_sample
from tests.fuzz.judge import Wrong, sentence
from tests.fuzz.tensors import kind as kind_of
from tests.fuzz.tensors import numbers, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    op = rng.choice((_uniform, _alias, _tree))
    call = op(rng)
    actual = []
    for backend in ("native", "reference"):
        try:
            actual.append([t if isinstance(t, int) else t.tolist() for t in call(backend)])
        except ElmoFastError as error:
            sentence(str(error))
            actual.append(None)
    if repr(actual[0]) != repr(actual[1]):
        raise Wrong(f"{op.__name__}: native and reference differ")


def _uniform(rng):
    words = rng.choice((1, 2, 10, 1000, 10**6, 2**31 - 1, 2**31, 0, -1))
    samples = rng.choice((1, 2, 50, 200, 0, -1, min(words, 60), words + 1))
    seed, offset = (rng.choice((0, 1, 2**63 - 1, rng.getrandbits(62), 2**63, -1)) for _ in range(2))

    def call(backend):
        ids, tries = log_uniform_sample(samples, words, seed=seed, offset=offset, backend=backend)
        return ids, tries, expected_counts(ids, tries, samples, words)

    return call


def _alias(rng):
    words = size(rng, 100)
    weights = whole(rng, (words,), 1000) if rng.random() < 0.4 else numbers(rng, (words,), kind_of(rng)).abs()
    power, samples, seed = rng.choice((1.0, 0.75, 0.0, -1.0, 300.0)), size(rng, 200), rng.getrandbits(62)

    def call(backend):
        table = alias_table(weights, power=power)
        if not bool(((table.aliases >= 0) & (table.aliases < words)).all()):
            raise Wrong("alias_table: an alias that is no word")
        return *table, alias_sample(samples, table, seed=seed)

    return call


def _tree(rng):
    counts = whole(rng, (size(rng, 200),), rng.choice((2, 1, 100, 2**50)), low=rng.choice((0, 0, 0, -1)))
    counts = torch.sort(counts).values if rng.random() < 0.3 else counts
    return lambda backend: huffman_tree(counts, backend=backend)
