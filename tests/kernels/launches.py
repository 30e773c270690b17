"""The launches of each op at the original ELMo's shapes: a function per golden table, of (label, call) pairs.

512 -> 4096 cells -> 512, 793,471 words, 8,192 samples, batches of 128 x 20 and larger.
"""

import functools
import importlib
from unittest import mock

import torch

from elmo_fast.ops._kernels import launch_dropout
from elmo_fast.ops._schemas import arguments_of
from elmo_fast.ops._triton import python_functions
from elmo_fast.ops.projected_lstm import forward_kernels

WORDS, SAMPLES, TOKENS, SIZE, CELLS, CHUNK = 793_471, 8192, 2560, 512, 4096, 32 * 2**20


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def whole(*shape):
    return torch.empty(shape, dtype=torch.int64)


# 20 of the 37 dense tensors: more than one launch holds, large and small, and not a multiple of the slots.
DENSE = [(262, 16), (1024, 16, 7), (1024,), (4096, 2048), (4096,), (512, 2048), (512,)]
DENSE += 3 * [(16384, 512), (16384, 512), (16384,), (512, 4096)] + [(1,)]


def adagrad():
    """The dense tensors, and the softmax table's rows of a batch."""

    def dense(clipped=True):
        tensors = [[torch.empty(shape) for shape in DENSE] for _ in range(3)]
        python_functions["adagrad_"](*tensors, torch.empty(()), torch.empty(()) if clipped else None)

    def rows(*width, index=torch.int32, clipped=True, n=2 * (TOKENS + SAMPLES)):
        ids, positions, gradient = torch.empty(n, dtype=index), whole(n), torch.empty(n, *width)
        table, accumulator = torch.empty(WORDS, *width), torch.empty(WORDS, *width)
        scale = torch.empty(()) if clipped else None
        python_functions["adagrad_rows_"](table, accumulator, ids, positions, gradient, torch.empty(()), scale)
        python_functions["merged_square_norm"](ids, positions, gradient, WORDS)

    yield "dense", dense
    yield "no clip", functools.partial(dense, clipped=False)
    yield "norm", lambda: python_functions["square_norm"]([torch.empty(shape) for shape in DENSE])
    yield "D=512", functools.partial(rows, 512)
    yield "D=32", functools.partial(rows, 32)
    yield "bias", rows
    yield "int64 ids", functools.partial(rows, 512, index=torch.int64)
    yield "no clip, D=512", functools.partial(rows, 512, clipped=False)


def char_cnn():
    """262 characters of 16, seven widths, 2048 filters."""
    widths = (1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)

    def both_ways(rows, precision, save=True, counted=True, size=16):
        ids, count, embedding = whole(rows, 50), whole() if counted else None, torch.empty(262, size)
        weights, biases = [torch.empty(n, size, k) for k, n in widths], [torch.empty(n) for _, n in widths]
        arguments = ids, embedding, weights, biases, count, False, precision
        features, saved = python_functions["char_cnn"](*arguments, save)
        if save:
            python_functions["char_cnn_backward"](features, features, saved, *arguments, True, True)

    for precision in ("bfloat16", "float32"):
        yield f"2560 words, {precision}", functools.partial(both_ways, 2560, precision)
    yield "20480 words, float16, inference", functools.partial(both_ways, 20480, "float16", False)
    yield "2560 words, bfloat16, E = 50", functools.partial(both_ways, 2560, "bfloat16", True, False, 50)


def dropout():
    """Factors of the inputs of two layers and the result of 128 rows of 20 steps."""
    yield "128 x 20", lambda: launch_dropout(2**32 // 10, 1.1, 1, whole(1), 0, (6, 128, 20 * 512))
    yield "a large seed, a ragged row", lambda: launch_dropout(2**31, 1.1, 2**40, whole(1), 0, (2, 1, 7))


def full_softmax():
    """An evaluation batch of 256, a training one of 2560, and 20480."""

    def forward(count, precision, words=WORDS):
        arguments = (
            torch.empty(count, SIZE),
            whole(count),
            torch.empty(words, SIZE),
            torch.empty(words),
            precision,
            CHUNK,
        )
        return *python_functions["full_softmax"](*arguments, precision != "float16"), *arguments

    def both_passes(count, precision):
        """A tenth of the vocabulary: the chunks, and so the kernels, are those of the whole."""
        python_functions["full_softmax_backward"](torch.empty(count), *forward(count, precision, WORDS // 10))

    for count, precision in ((256, "float16"), (2560, "bfloat16"), (20480, "float16"), (2560, "float32")):
        yield f"{precision}, {count} rows", functools.partial(forward, count, precision)
    yield "bfloat16, 2560 rows, both passes", functools.partial(both_passes, 2560, "bfloat16")
    yield "bfloat16, 20480 rows, both passes", functools.partial(both_passes, 20480, "bfloat16")


def hierarchical_softmax():
    """Paths of at most 30 nodes."""
    steps, longest = 15_000_000, 30

    def both_passes(count, precision):
        hidden, weight, bias = torch.empty(count, SIZE), torch.empty(WORDS - 1, SIZE), torch.empty(WORDS - 1)
        first, nodes, targets = whole(WORDS + 1), whole(steps), whole(count)
        tree = first, nodes, torch.empty(steps, dtype=torch.uint8), longest
        forward, backward = (python_functions[f"hierarchical_softmax{part}"] for part in ("", "_backward"))
        _, saved = forward(hidden, targets, weight, bias, *tree, precision, True, True)
        backward(torch.empty(count), saved, hidden, targets, weight, first, nodes, precision, True)

    for precision in ("bfloat16", "float32"):
        yield f"{precision}, 2560 rows", functools.partial(both_passes, 2560, precision)


def highway():
    """2048 features, two layers, projection to 512; inference without a projection."""
    width = 2048

    def passes(rows, dtype, counted):
        x, count = torch.empty(rows, width), whole() if counted else None
        weights, biases = ([torch.empty(2 * width, *more, dtype=d) for _ in range(2)]
                           for more, d in (((width,), dtype), ((), torch.float32)))  # fmt: skip
        projection, bias = torch.empty(SIZE, width, dtype=dtype), torch.empty(SIZE)
        precision = name_of(dtype)
        y, saved = python_functions["highway"](x, weights, biases, projection, bias, count, precision, True)
        arguments = torch.empty_like(y), saved, x, weights, biases, projection, bias, count, precision, True, True
        python_functions["highway_backward"](*arguments)

    def encode(rows, dtype):
        x, weights = torch.empty(rows, width), [torch.empty(2 * width, width, dtype=dtype)]
        python_functions["highway"](x, weights, [torch.empty(2 * width)], None, None, None, name_of(dtype), False)

    for dtype in (torch.bfloat16, torch.float32):
        yield f"{name_of(dtype)}, training", functools.partial(passes, 2560, dtype, False)
        yield f"{name_of(dtype)}, training on counted rows", functools.partial(passes, 20480, dtype, True)
    for dtype in (torch.float16, torch.float32):
        for rows in (1, 256, 700):
            yield f"{name_of(dtype)}, encoding {rows} rows", functools.partial(encode, rows, dtype)


def log_uniform_sample():
    """The published vocabulary, and numbers that take 64 bits."""
    kernels = importlib.import_module(
        "elmo_fast.ops.log_uniform_sample.kernels"
    )  # the package has a function of that name
    for label, sizes in (
        ("8192 of 793471 words", (SAMPLES, WORDS, 1)),
        ("a large seed", (100, 10_000, 2**40)),
    ):
        yield label, lambda sizes=sizes: kernels.sample(arguments_of("log_uniform_sample")(*sizes, whole(1)))


def negative_sampling():
    """8192 samples, 2560 and 20,480 rows."""

    def both_passes(count, precision, noise):
        hidden, weight, law = torch.empty(count, SIZE), torch.empty(WORDS, SIZE), torch.empty(WORDS) if noise else None
        options, forward = (law, 64.0, False, CHUNK, precision), python_functions["negative_sampling"]
        _, *saved = forward(hidden, whole(count), weight, torch.empty(WORDS), whole(SAMPLES), *options, True)
        python_functions["negative_sampling_backward"](torch.empty(count), *saved, hidden, weight, *options)

    for count, precision, noise in ((2560, "bfloat16", False), (20480, "bfloat16", False), (2560, "float32", True)):
        yield f"{precision}, {count} rows", functools.partial(both_passes, count, precision, noise)


def projected_lstm():
    """Both directions, a few steps of each batch."""
    time = 2

    def both_ways(batch, dtype, save=True, equal=False):
        """Forward and, with `save`, backward of one layer; equal: all rows have the same length."""
        inputs = [torch.empty(batch, time, SIZE) for _ in range(2)]
        sizes = ((4 * CELLS, SIZE), (4 * CELLS, SIZE), (4 * CELLS,), (SIZE, CELLS))
        weights = [[torch.empty(size) for _ in range(2)] for size in sizes]
        lengths = None if equal else whole(batch)
        state = (torch.empty(2, batch, SIZE), torch.empty(2, batch, CELLS))
        options = [False, True], 3.0, 3.0, True, name_of(dtype)
        results = python_functions["projected_lstm"](inputs, *weights, lengths, *state, [], *options, save)
        if save:
            arguments = inputs, *weights, lengths, *state, [], *options, True, True, True
            python_functions["projected_lstm_backward"](*results, *arguments)

    def fused(batch):
        """The kernels that benchmarks compare with cuBLAS's products."""
        with mock.patch.object(forward_kernels, "FUSED", True):
            both_ways(batch, torch.bfloat16)

    for batch in (16, 32, 64, 128, 1024):
        yield f"batch {batch}, bfloat16", functools.partial(both_ways, batch, torch.bfloat16)
        if batch in (16, 128):
            yield f"batch {batch}, float32", functools.partial(both_ways, batch, torch.float32)
    yield "batch 128, bfloat16, fused", functools.partial(fused, 128)
    for batch in (16, 128, 832):  # of embedding's own batches
        yield f"batch {batch}, float16, inference", functools.partial(both_ways, batch, torch.float16, False)
    yield "batch 16, bfloat16, no lengths", functools.partial(both_ways, 16, torch.bfloat16, equal=True)


def sampled_softmax():
    """8192 samples, 128 x 20 and 1024 x 20 rows."""

    def both_passes(count, precision, correction="tensorflow"):
        hidden, weight, options = torch.empty(count, SIZE), torch.empty(WORDS, SIZE), (False, CHUNK, precision)
        sampled = whole(SAMPLES), whole(), correction, None
        forward, backward = (python_functions[f"sampled_softmax{part}"] for part in ("", "_backward"))
        results = forward(hidden, whole(count), weight, torch.empty(WORDS), *sampled, *options, True)
        backward(torch.empty(count), *results, hidden, weight, *options)

    for count, precision in ((2560, "bfloat16"), (20480, "bfloat16"), (2560, "float32")):
        yield f"{precision}, {count} rows", functools.partial(both_passes, count, precision)
    yield "bfloat16, 2560 rows, allennlp", functools.partial(both_passes, 2560, "bfloat16", "allennlp")


def scalar_mix():
    """Three layers of [128, 20, 1024]."""

    def passes(dtype, mixes, dropout, layer_norm, layers=3, shape=(128, 20, 1024), need_layers=True):
        xs, factors = [torch.empty(shape, dtype=dtype) for _ in range(layers)], torch.empty(mixes, layers)
        counted = torch.empty(shape[:-1], dtype=torch.bool) if layer_norm else None
        seed = whole() if dropout else None
        y, saved = python_functions["scalar_mix"](xs, factors, counted, seed, layer_norm, 1e-12, dropout)
        arguments = torch.empty_like(y), saved, xs, factors, counted, seed, layer_norm, dropout
        python_functions["scalar_mix_backward"](*arguments, need_layers, True)

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        yield name_of(dtype), functools.partial(passes, dtype, 1, 0.0, False)
        yield f"{name_of(dtype)}, dropout", functools.partial(passes, dtype, 1, 0.5, False)
        yield f"{name_of(dtype)}, layer norm", functools.partial(passes, dtype, 1, 0.5, True)
    yield "float16, 2 mixes, dropout", lambda: passes(torch.float16, 2, 0.5, False)
    yield "float16, frozen layers", lambda: passes(torch.float16, 2, 0.5, False, need_layers=False)
    # Arguments that equal 1 become constants of the kernel.
    yield "float16, one element", lambda: passes(torch.float16, 1, 2.0**-32, True, layers=1, shape=(1, 1, 1))


def unique_rows():
    """Distinct words of 50 characters, vectors of 512 gathered, and the gradient on its way back."""

    def there_and_back(rows):
        _, inverse, _, *order = python_functions["padded_unique_rows"](whole(rows, 50))
        vectors = python_functions["gather_rows"](torch.empty(rows, SIZE), inverse, *order, rows)
        python_functions["gather_rows_backward"](vectors, inverse, *order, rows)

    for rows in (2560, 20480):
        yield f"{rows} words", functools.partial(there_and_back, rows)
