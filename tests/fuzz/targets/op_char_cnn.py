"""char_cnn: any widths, numbers of filters, slots and ids."""

import random

import torch

from elmo_fast.ops import char_cnn
from tests.fuzz.tensors import compare, floating, kind, numbers, precision, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    rows, slots, characters, width = size(rng, 60), size(rng, 30), size(rng, 60), size(rng, 20)
    dtype, values = floating(rng, "char_cnn"), kind(rng)
    ids = whole(rng, (rows, slots), characters, dtype=rng.choice((torch.int64, torch.int32)))
    if rng.random() < 0.05:
        ids = ids + rng.choice((-1, 1, 2**31 - 1))
    widths = [
        min(size(rng, 8, zero=rng.random() < 0.05), slots + (rng.random() < 0.03)) for _ in range(rng.randrange(1, 5))
    ]
    filters = [size(rng, 40) for _ in widths]
    activation = rng.choice(("relu", "tanh"))
    tensors = [numbers(rng, (characters, width), values, dtype=dtype)]
    tensors += [
        numbers(rng, (n, width, k), values, dtype=dtype, scale=0.3) for k, n in zip(widths, filters, strict=True)
    ]
    # The reference adds a bias before the maximum, the kernel after it: a bias that drowns the windows makes them all
    # alike in the one alone, as an infinite one does (docs/numerics.md).
    quiet = values._replace(odd=False)
    tensors += [numbers(rng, (n,), quiet, dtype=dtype, scale=0.3 * min(values.scale, 1)) for n in filters]
    count = None if rng.random() < 0.7 else torch.tensor(rng.choice((0, 1, rows, rows // 2, rows + 3, -2)))

    chosen = precision(rng, "char_cnn", dtype)

    def call(t, backend, rounds_to):
        how = "int8" if chosen == "int8" else rounds_to  # whose convolutions are float32's
        yield char_cnn(ids, t[0], t[1 : 1 + len(widths)], t[1 + len(widths) :], activation=activation, count=count,
                       precision=how, backend=backend)  # fmt: skip

    # Gradients of NaN are not the same, as docs/numerics.md says.
    rounding = "float32" if chosen == "int8" else chosen
    compare("char_cnn", call, tensors, rng, precision=rounding, differentiate=not values.odd)
