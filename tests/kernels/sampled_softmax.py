"""The launches of sampled_softmax at the original ELMo's shapes: 8192 of 793,471 words, 128 x 20 and 1024 x 20 rows."""

import torch

from elmo_fast.ops._triton import python_function_of

WIDTH, WORDS, SAMPLES, CHUNK = 512, 793_471, 8192, 32 * 2**20
SIZES = [(2560, "bfloat16"), (20480, "bfloat16"), (2560, "float32")]


def both_passes(count, precision, correction="tensorflow", width=WIDTH):
    """Forward, then backward on what it saved."""
    targets, samples = (torch.empty(n, dtype=torch.int64) for n in (count, SAMPLES))
    weight, tries = torch.empty(WORDS, width), torch.empty((), dtype=torch.int64)
    hidden, options = torch.empty(count, width), (False, CHUNK, precision)
    results = python_function_of("sampled_softmax")(
        hidden, targets, weight, torch.empty(WORDS), samples, tries, correction, None, *options, True
    )
    return python_function_of("sampled_softmax_backward")(torch.empty(count), *results, hidden, weight, *options)


def launches():
    for count, precision in SIZES:
        yield f"{precision}, {count} rows", lambda count=count, precision=precision: both_passes(count, precision)
    yield "bfloat16, 2560 rows, allennlp", lambda: both_passes(2560, "bfloat16", "allennlp")
