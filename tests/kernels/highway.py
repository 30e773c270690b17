"""Launches of highway for the original architecture: 2048 features, two layers, projection to 512."""

import torch

from elmo_fast.ops._triton import python_function_of

WIDTH, LAYERS, PROJECTION = 2048, 2, 512


def passes(rows, dtype, counted):
    """Forward and backward over `rows` rows."""
    x, count = torch.empty(rows, WIDTH), torch.empty((), dtype=torch.int64) if counted else None
    weights = [torch.empty(2 * WIDTH, WIDTH, dtype=dtype) for _ in range(LAYERS)]
    biases = [torch.empty(2 * WIDTH) for _ in range(LAYERS)]
    projection, bias = torch.empty(PROJECTION, WIDTH, dtype=dtype), torch.empty(PROJECTION)
    precision = str(dtype).removeprefix("torch.")
    y, saved = python_function_of("highway")(x, weights, biases, projection, bias, count, precision, True)
    python_function_of("highway_backward")(
        torch.empty_like(y), saved, x, weights, projection, count, precision, True, True
    )


def encode(rows, dtype):
    """Inference, and without a projection."""
    x, weights = torch.empty(rows, WIDTH), [torch.empty(2 * WIDTH, WIDTH, dtype=dtype)]
    precision = str(dtype).removeprefix("torch.")
    python_function_of("highway")(x, weights, [torch.empty(2 * WIDTH)], None, None, None, precision, False)


def launches():
    for dtype in (torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        yield f"{name}, training", lambda dtype=dtype: passes(2560, dtype, False)
        yield f"{name}, training on counted rows", lambda dtype=dtype: passes(20480, dtype, True)
    for dtype in (torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for rows in (1, 256, 700):
            yield f"{name}, encoding {rows} rows", lambda rows=rows, dtype=dtype: encode(rows, dtype)
