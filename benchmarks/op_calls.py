"""pytest-benchmark cases of every op: native and reference in turn, forward and forward + backward, one thread.

`python -m benchmarks.run --case ops` runs it and pools the turns; alone: `pytest -o addopts= benchmarks/bench_ops.py`.
A backend that cannot serve a case skips it with its own sentence.
"""

import os

import pytest
import torch

from elmo_fast import ops
from elmo_fast.static import cooccurrences as counting
from elmo_fast.static import glove as steps
from elmo_fast.static import vector_text as lines

QUICK = os.environ.get("ELMO_FAST_BENCH_QUICK") == "1"
TURNS = 1 if QUICK else 3
WIDTHS = ((1, 4), (2, 8), (3, 20)) if QUICK else ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
FILTERS = sum(number for _, number in WIDTHS)
WORDS, PROJECTION, CELLS = (16, 32, 64) if QUICK else (400, 512, 4096)
TABLE, SAMPLES = (1000, 64) if QUICK else (100_000, 8192)
ROWS = 16 if QUICK else 640


def tensor(*shape, scale=1.0):
    return torch.empty(*shape).uniform_(-scale, scale)


def zipf():
    """Counts of a vocabulary by rank."""
    return 10**7 // torch.arange(1, TABLE + 1)


def char_cnn(precision, backend):
    ids = torch.randint(97, 123, (WORDS, 50))
    ids[:, 0], ids[:, 9], ids[:, 10:] = 259, 260, 261
    weights = [tensor(number, 16, width, scale=0.2) for width, number in WIDTHS]
    biases = [tensor(number) for _, number in WIDTHS]
    table = tensor(262, 16)
    return [table, *weights, *biases], lambda: ops.char_cnn(
        ids, table, weights, biases, precision=precision, backend=backend
    )


def highway(precision, backend):
    x = tensor(WORDS, FILTERS)
    weights = [tensor(2 * FILTERS, FILTERS, scale=FILTERS**-0.5) for _ in range(2)]
    biases = [tensor(2 * FILTERS) for _ in range(2)]
    projection, bias = tensor(PROJECTION, FILTERS, scale=FILTERS**-0.5), tensor(PROJECTION)
    return [x, *weights, *biases, projection, bias], lambda: ops.highway(
        x, weights, biases, projection, bias, precision=precision, backend=backend
    )


def projected_lstm(precision, backend):
    sizes = ((4 * CELLS, PROJECTION), (4 * CELLS, PROJECTION), (4 * CELLS,), (PROJECTION, CELLS))
    weights = [ops.LSTMWeights(*(tensor(*size, scale=CELLS**-0.5) for size in sizes)) for _ in range(2)]
    x = tensor(32, 20, PROJECTION)
    lengths = torch.arange(32) % 12 + 9
    return [x, *weights[0], *weights[1]], lambda: ops.projected_lstm(
        [x, x], weights, lengths, residual=True, precision=precision, backend=backend
    )[0]


def scalar_mix(precision, backend):
    layers = [tensor(32, 22, 2 * PROJECTION) for _ in range(3)]
    scalars, gammas = tensor(2, 3), tensor(2)
    return [*layers, scalars, gammas], lambda: ops.scalar_mix(layers, scalars, gammas, backend=backend)


def sampled_softmax(precision, backend):
    samples, tries = ops.log_uniform_sample(SAMPLES, TABLE, seed=0)
    hidden, weight, bias = tensor(160, PROJECTION), tensor(TABLE, PROJECTION), tensor(TABLE)
    targets = torch.randint(0, TABLE, (160,))
    return [hidden, weight, bias], lambda: ops.sampled_softmax(
        hidden, targets, weight, bias, samples, tries, sparse=True, precision=precision, backend=backend
    )


def negative_sampling(precision, backend):
    samples = ops.alias_sample(SAMPLES // 8, ops.alias_table(zipf(), power=0.75), seed=0)
    hidden, weight, bias = tensor(ROWS, PROJECTION), tensor(TABLE, PROJECTION), tensor(TABLE)
    targets = ops.alias_sample(ROWS, ops.alias_table(zipf()), seed=1)
    return [hidden, weight, bias], lambda: ops.negative_sampling(
        hidden, targets, weight, bias, samples, sparse=True, precision=precision, backend=backend
    )


def hierarchical_softmax(precision, backend):
    tree = ops.huffman_tree(zipf())
    hidden, weight, bias = tensor(ROWS, PROJECTION), tensor(TABLE - 1, PROJECTION, scale=0.1), tensor(TABLE - 1)
    targets = ops.alias_sample(ROWS, ops.alias_table(zipf()), seed=1)
    return [hidden, weight, bias], lambda: ops.hierarchical_softmax(
        hidden, targets, weight, bias, tree, sparse=True, precision=precision, backend=backend
    )


def full_softmax(precision, backend):
    words = TABLE // 5
    hidden, weight, bias = tensor(ROWS // 4, PROJECTION), tensor(words, PROJECTION), tensor(words)
    targets = torch.randint(0, words, (ROWS // 4,))
    return [hidden, weight, bias], lambda: ops.full_softmax(
        hidden, targets, weight, bias, precision=precision, backend=backend
    )


def alias_sample(precision, backend):
    """The noise of one step; it has no gradient."""
    table = ops.alias_table(zipf(), power=0.75)
    return [], lambda: ops.alias_sample(SAMPLES, table, seed=0, backend=backend)


def adagrad(precision, backend):
    """One update of an LSTM direction's weights, and of the table's rows that a batch touched; it has no gradient."""
    shapes = ((4 * CELLS, PROJECTION), (4 * CELLS, PROJECTION), (4 * CELLS,), (PROJECTION, CELLS))
    weights, gradients = ([tensor(*shape) for shape in shapes] for _ in range(2))
    sums = [torch.ones_like(weight) for weight in weights]
    table, rows = tensor(TABLE, PROJECTION), tensor(SAMPLES + 160, PROJECTION)
    table_sums, ids = torch.ones_like(table), torch.randperm(TABLE)[: SAMPLES + 160].sort()[0]

    def update():
        ops.adagrad_(weights, sums, gradients, 0.2, backend=backend)
        ops.adagrad_rows_(table, table_sums, ids, rows, 0.2, backend=backend)
        return table_sums[:1]

    return [], update


def zipf_text():
    """Numbers of a text by Zipf's law, every twentieth a sentence's end, and the word of each number."""
    count, num_words = (2000, 500) if QUICK else (200_000, 20_000)
    numbers = torch.exp(torch.rand(count) * torch.tensor(float(num_words)).log()).int().clamp_max(num_words - 1)
    numbers[::20] = num_words
    return numbers, torch.cat([torch.arange(num_words), torch.tensor([counting.BOUNDARY])]).int(), num_words


def cooccurrences(precision, backend):
    """A text counted with a window of 10; it has no gradient."""
    numbers, words, num_words = zipf_text()
    return [], lambda: counting.cooccurrences([numbers], words, num_words, backend=backend).values


def glove(precision, backend):
    """Steps of entries in random order, dimension 100; they are few, as the reference makes them one by one."""
    num_words, entries = (500, 50) if QUICK else (20_000, 1000)
    rows, columns = (torch.randint(0, num_words, (entries,), dtype=torch.int32) for _ in "ij")
    values, shapes = torch.rand(entries) * 30 + 0.1, ((num_words, 100), (num_words, 100), (num_words,), (num_words,))
    weights = steps.GloveWeights(*(tensor(*shape, scale=0.005) for shape in shapes))
    squares = steps.GloveWeights(*(torch.ones(*shape) for shape in shapes))
    return [], lambda: steps.glove_(rows, columns, values, weights, squares, backend=backend)


def vector_text(precision, backend):
    """Vectors of 300 dimensions written and read."""
    matrix = torch.randn(5 if QUICK else 200, 300)
    words, ends = torch.full((6 * len(matrix),), ord("w"), dtype=torch.uint8), 6 * torch.arange(1, len(matrix) + 1)
    return (
        [],
        lambda: (
            lines.read_vector_text(
                lines.write_vector_text(words, ends, matrix, backend=backend), 300, backend=backend
            ).matrix
        ),
    )


CASES = [
    *((case, precision) for case in (char_cnn, highway, projected_lstm) for precision in ("float32", "bfloat16")),
    (scalar_mix, "float32"),
    (sampled_softmax, "float32"),
    (sampled_softmax, "bfloat16"),
    (negative_sampling, "float32"),
    (negative_sampling, "bfloat16"),
    (hierarchical_softmax, "float32"),
    (full_softmax, "float32"),
    (alias_sample, "float32"),
    (adagrad, "float32"),
    (cooccurrences, "float32"),
    (glove, "float32"),
    (vector_text, "float32"),
]


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("train", [False, True], ids=["forward", "forward+backward"])
@pytest.mark.parametrize(
    ("case", "precision"), CASES, ids=[f"{case.__name__}-{precision}" for case, precision in CASES]
)
def test_op(benchmark, case, precision, train, turn, backend):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    choice = ops.explain(case.__name__, torch.device("cpu"), torch.float32, precision)
    if backend == "native" and choice.backend != "native":
        pytest.skip(choice.refusals.get("native", f"{case.__name__} has no native backend"))
    inputs, forward = case(precision, backend)
    if train and not inputs:
        pytest.skip(f"{case.__name__} has no backward")
    for each in inputs:
        each.requires_grad_(train)
    cotangent = torch.randn_like(forward()) if train else None

    def call():
        with torch.set_grad_enabled(train):
            outputs = forward()
            if train:
                torch.autograd.grad(outputs, inputs, cotangent)

    name = f"{case.__name__}, {precision}, {'forward + backward' if train else 'forward'}"
    benchmark.group = name
    benchmark.extra_info.update(variant=name, backend=backend)
    benchmark.pedantic(call, rounds=3 if QUICK else 8, warmup_rounds=1)
