"""Launches of scalar_mix for the original architecture: three layers of [128, 20, 1024]."""

import torch

from elmo_fast.ops._triton import python_function_of

SHAPE = (128, 20, 1024)


def passes(dtype, mixes, dropout, layer_norm, layers=3, shape=SHAPE, need_layers=True):
    """Forward and backward."""
    xs = [torch.empty(shape, dtype=dtype) for _ in range(layers)]
    factors = torch.empty(mixes, layers)
    counted = torch.empty(shape[:-1], dtype=torch.bool) if layer_norm else None
    seed = torch.empty((), dtype=torch.int64) if dropout else None
    y, saved = python_function_of("scalar_mix")(xs, factors, counted, seed, layer_norm, 1e-12, dropout)
    arguments = torch.empty_like(y), saved, xs, factors, counted, seed, layer_norm, dropout
    python_function_of("scalar_mix_backward")(*arguments, need_layers, True)


def launches():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        yield name, lambda d=dtype: passes(d, 1, 0.0, False)
        yield f"{name}, dropout", lambda d=dtype: passes(d, 1, 0.5, False)
        yield f"{name}, layer norm", lambda d=dtype: passes(d, 1, 0.5, True)
    yield "float16, 2 mixes, dropout", lambda: passes(torch.float16, 2, 0.5, False)
    yield "float16, frozen layers", lambda: passes(torch.float16, 2, 0.5, False, need_layers=False)
    # Arguments that equal 1 become constants of the kernel.
    yield "float16, one element", lambda: passes(torch.float16, 1, 2.0**-32, True, layers=1, shape=(1, 1, 1))
