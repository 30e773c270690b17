"""Shared by the tests of adagrad: backends, tensors of awkward sizes, rows of repeated ids."""

import math

import pytest
import torch

from tests.support.backends import backends

every = pytest.mark.parametrize("backend", backends("adagrad", reference=True))


triton = pytest.mark.parametrize("backend", [p for p in backends("adagrad") if p.values == ("triton",)])


NO_NUMBER = [math.nan, math.inf, -math.inf]


# More than two launches hold; empty, of one element, a whole block, one more, one less, several blocks.
SHAPES = [
    (3,), (70, 40), (1024,), (1,), (0, 5), (2500,), (2048,), (1025,), (1023,), (3, 3, 3),
    (5,), (8200,), (16,), (7, 11), (4, 256), (31,), (33,), (9000,), (2,),
]  # fmt: skip


def tensors(shapes=SHAPES):
    """Weights, accumulators above zero and gradients, of rising size, so that no two slots look alike."""
    lists = [[torch.randn(shape) * (1 + k) for k, shape in enumerate(shapes)] for _ in range(3)]
    return lists[0], [0.5 + sums.square() for sums in lists[1]], lists[2]


def written_out(weights, sums, gradients, learning_rate, scale=1.0):
    """a += (s g)², w -= lr s g / √a, tensor by tensor."""
    sums = [a + (scale * g) ** 2 for a, g in zip(sums, gradients, strict=True)]
    weights = [w - learning_rate * scale * g / a.sqrt() for w, a, g in zip(weights, sums, gradients, strict=True)]
    return weights, sums


WIDTHS = [(), (1,), (5,), (33,), (200,), (513,), (2, 3)]


def fewer(width):
    """(rows, words): wide rows take the interpreter long."""
    return (333, 90) if math.prod(width) < 10 else (200, 12)


def repeated(count, words, longest):
    """Ids in disorder, half of them one word, so that its segment is longer than one program adds."""
    ids = torch.randint(0, words, (count,))
    ids[: min(longest, count)] = words // 2
    return ids[torch.randperm(count)]


def merged(ids, rows, words):
    """The dense gradient of a table, and the rows it touches."""
    dense = torch.zeros(words, *rows.shape[1:], dtype=rows.dtype).index_add_(0, ids.long(), rows)
    return dense, torch.zeros(words, dtype=torch.bool).index_fill_(0, ids.long(), True)
