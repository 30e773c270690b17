"""highway: any widths, layers, counts and strides."""

import random

import torch

from elmo_fast.ops import highway
from tests.fuzz.tensors import compare, floating, kind, numbers, precision, size, threads


def case(rng: random.Random) -> None:
    threads(rng)
    rows, width, layers, out = size(rng, 80), size(rng), rng.randrange(4), size(rng)
    dtype, values = floating(rng, "highway"), kind(rng)
    small = 1 / max(width, 1) ** 0.5
    tensors = [numbers(rng, (rows, width), values, dtype=dtype)]
    tensors += [numbers(rng, (2 * width, width), values, dtype=dtype, scale=small) for _ in range(layers)]
    tensors += [numbers(rng, (2 * width,), values, dtype=dtype) for _ in range(layers)]
    projected = rng.choice((0, 1, 2))
    tensors += [numbers(rng, shape, values, dtype=dtype, scale=small) for shape in ((out, width), (out,))[:projected]]
    count = None if rng.random() < 0.7 else torch.tensor(rng.choice((0, 1, rows, rows // 2, rows + 3, -2)))

    def call(t, backend, precision):
        projection = t[1 + 2 * layers :]
        yield highway(t[0], t[1 : 1 + layers], t[1 + layers : 1 + 2 * layers], *projection, count=count,
                      precision=precision, backend=backend)  # fmt: skip

    compare("highway", call, tensors, rng, precision=precision(rng, "highway", dtype))
