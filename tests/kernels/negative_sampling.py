"""The launches of negative_sampling at the original ELMo's shapes: 8192 of 793,471 words, 2560 and 20,480 rows."""

import torch

from elmo_fast.ops._triton import python_function_of

WIDTH, WORDS, SAMPLES, CHUNK = 512, 793_471, 8192, 32 * 2**20
SIZES = [(2560, "bfloat16", False), (20480, "bfloat16", False), (2560, "float32", True)]


def both_passes(count, precision, noise=False, width=WIDTH):
    """Forward, then backward on what it saved."""
    targets, samples = (torch.empty(n, dtype=torch.int64) for n in (count, SAMPLES))
    weight, law = torch.empty(WORDS, width), torch.empty(WORDS) if noise else None
    hidden, options = torch.empty(count, width), (law, 64.0, False, CHUNK, precision)
    _, *saved = python_function_of("negative_sampling")(
        hidden, targets, weight, torch.empty(WORDS), samples, *options, True
    )
    return python_function_of("negative_sampling_backward")(torch.empty(count), *saved, hidden, weight, *options)


def launches():
    for count, precision, noise in SIZES:
        yield f"{precision}, {count} rows", lambda each=(count, precision, noise): both_passes(*each)
