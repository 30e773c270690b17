"""projected_lstm: any batch, time, widths, lengths, clips, masks, one or two directions."""

import random

from elmo_fast.ops import LSTMWeights, projected_lstm
from tests.fuzz.tensors import compare, floating, kind, numbers, precision, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    batch, time = size(rng, 12), size(rng, 9) if rng.random() < 0.95 else rng.randrange(100, 200)
    width, cells, runs = size(rng, 24), size(rng, 24), rng.choice((2, 1, 3))
    projected = rng.random() < 0.8
    out = size(rng, 24) if projected else cells
    residual = rng.random() < 0.3
    width = out if residual else width
    dtype, values = floating(rng, "projected_lstm"), kind(rng)
    masked, stateful = rng.random() < 0.25, rng.random() < 0.6

    def matrix(*shape):
        return numbers(rng, shape, values, dtype=dtype, scale=rng.choice((1.0, 1.0, 3.0)) / max(shape[-1], 1) ** 0.5)

    tensors = [numbers(rng, (batch, time, width), values, dtype=dtype) for _ in range(runs)]
    per_run = 4 if projected else 3
    for _ in range(runs):
        tensors += [matrix(4 * cells, width), matrix(4 * cells, out), numbers(rng, (4 * cells,), values, dtype=dtype)]
        tensors += [matrix(out, cells)] if projected else []
    extras = [(batch, out)] * runs * masked + [(runs, batch, out), (runs, batch, cells)] * stateful
    tensors += [numbers(rng, shape, values, dtype=dtype) for shape in extras]
    lengths = None if rng.random() < 0.4 else whole(rng, (batch,), rng.choice((time + 1, time + 1, 1)))
    options = {
        "reverse": [rng.random() < 0.5 for _ in range(runs)],
        "cell_clip": rng.choice((3.0, None, 0.1)),
        "projection_clip": rng.choice((3.0, None, 0.1)),
        "residual": residual,
    }

    def call(t, backend, precision):
        weights = [LSTMWeights(*t[runs + r * per_run : runs + (r + 1) * per_run]) for r in range(runs)]
        rest = t[runs * (1 + per_run) :]
        masks = rest[:runs] if masked else None
        state = tuple(rest[-2:]) if stateful else None
        y, (h, c) = projected_lstm(t[:runs], weights, lengths, state, recurrent_masks=masks, precision=precision,
                                   backend=backend, **options)  # fmt: skip
        return y, h, c

    compare("projected_lstm", call, tensors, rng, precision=precision(rng, "projected_lstm", dtype))
