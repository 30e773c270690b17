"""projected_lstm at production shapes: 512 -> 4096 cells -> 512, both directions, a few steps of each batch."""

import functools
from unittest import mock

import torch

from elmo_fast.ops._triton import python_function_of
from elmo_fast.ops.projected_lstm import forward_kernels

SIZE, CELLS, TIME = 512, 4096, 2


def both_ways(batch, dtype, save=True, equal=False):
    """Forward and, with `save`, backward of one layer: the host functions, as the op calls them.

    equal: all rows have the same length.
    """
    inputs = [torch.empty(batch, TIME, SIZE) for _ in range(2)]
    sizes = ((4 * CELLS, SIZE), (4 * CELLS, SIZE), (4 * CELLS,), (SIZE, CELLS))
    weights = [[torch.empty(size) for _ in range(2)] for size in sizes]
    lengths = None if equal else torch.empty(batch, dtype=torch.int64)
    state = (torch.empty(2, batch, SIZE), torch.empty(2, batch, CELLS))
    options = [False, True], 3.0, 3.0, True, str(dtype).removeprefix("torch.")
    results = python_function_of("projected_lstm")(inputs, *weights, lengths, *state, [], *options, save)
    if save:
        kinds = weights[0], weights[1], weights[3]
        arguments = inputs, *kinds, lengths, *state, [], *options, True, True, True
        python_function_of("projected_lstm_backward")(*results, *arguments)


def fused(batch):
    """The kernels that benchmarks compare with cuBLAS's products."""
    with mock.patch.object(forward_kernels, "FUSED", True):
        both_ways(batch, torch.bfloat16)


def launches():
    """(label, call) per batch and precision."""
    for batch in (16, 32, 64, 128, 1024):
        yield f"batch {batch}, bfloat16", functools.partial(both_ways, batch, torch.bfloat16)
        if batch in (16, 128):
            yield f"batch {batch}, float32", functools.partial(both_ways, batch, torch.float32)
    yield "batch 128, bfloat16, fused", functools.partial(fused, 128)
    for batch in (16, 128, 832):  # of embedding's own batches
        yield f"batch {batch}, float16, inference", functools.partial(both_ways, batch, torch.float16, False)
    yield "batch 16, bfloat16, no lengths", functools.partial(both_ways, 16, torch.bfloat16, equal=True)
