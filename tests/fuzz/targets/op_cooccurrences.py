"""cooccurrences and glove_: any text, windows, memory; the steps of GloVe on one thread."""

import random
import unittest.mock

import torch

from elmo_fast.ops import _native
from elmo_fast.static.cooccurrences import cooccurrences
from elmo_fast.static.glove import GloveWeights, glove_
from tests.fuzz.judge import Wrong, may_refuse
from tests.fuzz.tensors import compare, floating, kind, numbers, size, threads, whole


def case(rng: random.Random) -> None:
    rng.choice((_count, _glove))(rng)


def _count(rng):
    threads(rng)
    words = size(rng, 40, zero=False)
    parts = [whole(rng, (size(rng, 60),), 50, dtype=torch.int32) for _ in range(rng.randrange(4))]
    of_number = whole(rng, (rng.choice((50, 50, 10)),), words, low=-2, dtype=torch.int32)
    window = rng.choice((10, 1, 2, 20, 21, 255, 0, 256))
    options = {"symmetric": rng.random() < 0.5, "memory": rng.choice((1 << 20, 1 << 30))}
    actual = []
    for extension in (_native.C, None):
        with may_refuse(), unittest.mock.patch.object(_native, "C", extension):
            actual.append(cooccurrences(parts, of_number, words, window=window, **options))
    if len(actual) == 1 or (actual and not all(map(torch.equal, *actual))):
        raise Wrong("cooccurrences: C++ and torch differ, or one refuses alone")


def _glove(rng):
    torch.set_num_threads(1)
    words, width, entries = size(rng, 30, zero=False), size(rng, 30), size(rng, 100)
    dtype, values = floating(rng, "glove"), kind(rng)
    rows, columns = (whole(rng, (entries,), words, dtype=torch.int32) for _ in range(2))
    tensors = [numbers(rng, (entries,), values, dtype=dtype, scale=50).abs() + (rng.random() < 0.95) * 1e-3]
    shapes = [(words, width), (words, width), (words,), (words,)]
    tensors += [numbers(rng, shape, values, dtype=dtype, scale=0.3) for shape in shapes]
    options = {
        "learning_rate": rng.choice((0.05, 1e-3)),
        "x_max": rng.choice((100.0, 1.0)),
        "alpha": rng.choice((0.75, 0.0, 1.0)),
    }

    def call(t, backend, precision):
        weights = GloveWeights(*(each.detach().clone(memory_format=torch.contiguous_format) for each in t[1:]))
        squares = GloveWeights(*map(torch.ones_like, weights))
        return glove_(rows, columns, t[0].detach(), weights, squares, backend=backend, **options), *weights, *squares

    compare("glove_", call, tensors, rng, differentiate=False)
