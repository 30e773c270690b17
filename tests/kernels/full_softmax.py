"""The launches of full_softmax over 793,471 words at an evaluation batch of 256, a training one of 2560, and 20480."""

import torch

from elmo_fast.ops._triton import python_function_of

WIDTH, WORDS, CHUNK = 512, 793_471, 32 * 2**20
SIZES = [(256, "float16"), (2560, "bfloat16"), (20480, "float16"), (2560, "float32")]


def forward(count, precision, words=WORDS, width=WIDTH):
    targets, weight, bias = torch.empty(count, dtype=torch.int64), torch.empty(words, width), torch.empty(words)
    arguments = torch.empty(count, width), targets, weight, bias, precision, CHUNK
    return *python_function_of("full_softmax")(*arguments, precision != "float16"), *arguments


def both_passes(count, precision):
    """A tenth of the vocabulary: the chunks, and so the kernels, are those of the whole."""
    python_function_of("full_softmax_backward")(torch.empty(count), *forward(count, precision, WORDS // 10))


def launches():
    for count, precision in SIZES:
        yield f"{precision}, {count} rows", lambda count=count, precision=precision: forward(count, precision)
    yield "bfloat16, 2560 rows, both passes", lambda: both_passes(2560, "bfloat16")
    yield "bfloat16, 20480 rows, both passes", lambda: both_passes(20480, "bfloat16")
