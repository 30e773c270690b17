"""scalar_mix: any layers, mixes, masks, dropout."""

import math
import random

import torch

from elmo_fast.ops import scalar_mix
from tests.fuzz.tensors import compare, floating, kind, numbers, size, threads, whole


def case(rng: random.Random) -> None:
    threads(rng)
    layers, mixes = rng.choice((1, 2, 3, 5, 9)), size(rng, 4)
    axes = rng.choice((3, 3, 1, 2, 4))
    shape = [size(rng, 20 if axes < 4 else 6) for _ in range(axes)]  # four of 80 would take gigabytes
    dtype, values = floating(rng, "scalar_mix"), kind(rng)
    tensors = [numbers(rng, shape, values, dtype=dtype) for _ in range(layers)]
    tensors += [numbers(rng, (mixes, layers), values, dtype=dtype), numbers(rng, (mixes,), values, dtype=dtype)]
    mask = None if rng.random() < 0.5 else whole(rng, shape[:-1], 2, dtype=rng.choice((torch.bool, torch.int64)))
    options = {
        "layer_norm": rng.random() < 0.6,
        "statistics_mask": mask,
        "eps": rng.choice((1e-12, 1e-13, 1e-5)),
        "dropout": rng.choice((0.0, 0.0, 0.5, 0.999)),
        "seed": rng.getrandbits(60),
    }

    def call(t, backend, precision):
        yield scalar_mix(t[:layers], t[layers], t[layers + 1], backend=backend, **options)

    cancelling = _cancelling(tensors, options) if options["layer_norm"] and mixes else {}
    # Without a mix nothing depends on what is NaN; the reference multiplies it by zero.
    compare("scalar_mix", call, tensors, rng, differentiate=bool(mixes) or not values.odd, cancelling=cancelling)


def _cancelling(tensors, options):
    """The gradient of each layer, for a gradient of 1, before mean and slope are subtracted from it."""
    *held, scalars, gammas = (tensor.double() for tensor in tensors)
    weights = (gammas.unsqueeze(1).abs() * torch.softmax(scalars, 1)).sum(0) / (1 - options["dropout"])
    counted = torch.ones(held[0].shape[:-1]) if options["statistics_mask"] is None else options["statistics_mask"]
    sizes = {}
    for i, layer in enumerate(held):
        variance = layer[counted.bool()].var(correction=0) if counted.any() else layer.new_zeros(())
        size = float(weights[i] / (variance + options["eps"]).sqrt())
        sizes[f"gradient of tensor {i}"] = size if math.isfinite(size) else 0.0
    return sizes
