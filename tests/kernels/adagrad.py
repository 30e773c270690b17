"""AdaGrad's launches: the dense tensors of the original ELMo, and the softmax table's rows of a batch of 128 x 20."""

import torch

from elmo_fast.ops._triton import python_function_of

# 20 of the 37: more than one launch holds, large and small, and not a multiple of the slots.
SHAPES = [(262, 16), (1024, 16, 7), (1024,), (4096, 2048), (4096,), (512, 2048), (512,)]
SHAPES += 3 * [(16384, 512), (16384, 512), (16384,), (512, 4096)] + [(1,)]
VOCABULARY, TOKENS, SAMPLES = 793_471, 2560, 8192


def dense(clipped=True, shapes=SHAPES):
    def call():
        tensors = [[torch.empty(shape) for shape in shapes] for _ in range(3)]
        python_function_of("adagrad_")(*tensors, torch.empty(()), torch.empty(()) if clipped else None)

    return call


def norm(shapes=SHAPES):
    python_function_of("square_norm")([torch.empty(shape) for shape in shapes])


def rows(*width, index=torch.int32, clipped=True, n=2 * (TOKENS + SAMPLES)):
    def call():
        ids, positions, gradient = (
            torch.empty(n, dtype=index),
            torch.empty(n, dtype=torch.int64),
            torch.empty(n, *width),
        )
        table, accumulator = torch.empty(VOCABULARY, *width), torch.empty(VOCABULARY, *width)
        scale = torch.empty(()) if clipped else None
        python_function_of("adagrad_rows_")(table, accumulator, ids, positions, gradient, torch.empty(()), scale)
        python_function_of("merged_square_norm")(ids, positions, gradient, VOCABULARY)

    return call


def launches():
    yield "dense", dense()
    yield "no clip", dense(clipped=False)
    yield "norm", norm
    yield "D=512", rows(512)
    yield "D=32", rows(32)
    yield "bias", rows()
    yield "int64 ids", rows(512, index=torch.int64)
    yield "no clip, D=512", rows(512, clipped=False)
