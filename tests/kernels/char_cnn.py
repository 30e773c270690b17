"""char_cnn at production shapes: the original ELMo's 262 characters of 16, seven widths, 2048 filters."""

import functools

import torch

from elmo_fast.ops._triton import python_function_of

WIDTHS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def both_ways(rows, precision, save=True, counted=True, size=16):
    """Forward and, with `save`, backward."""
    ids, count = torch.empty(rows, 50, dtype=torch.int64), torch.empty((), dtype=torch.int64) if counted else None
    embedding = torch.empty(262, size)
    weights, biases = [torch.empty(n, size, k) for k, n in WIDTHS], [torch.empty(n) for _, n in WIDTHS]
    arguments = ids, embedding, weights, biases, count, False, precision
    features, saved = python_function_of("char_cnn")(*arguments, save)
    if save:
        python_function_of("char_cnn_backward")(features, features, saved, *arguments, True, True)


def launches():
    """(label, call) per size of batch and precision."""
    for precision in ("bfloat16", "float32"):
        yield f"2560 words, {precision}", functools.partial(both_ways, 2560, precision)
    yield "20480 words, float16, inference", functools.partial(both_ways, 20480, "float16", False)
    yield "2560 words, bfloat16, E = 50", functools.partial(both_ways, 2560, "bfloat16", True, False, 50)
