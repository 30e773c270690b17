"""What the tests of char_cnn share: the backends, cases and the comparison with float64."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import char_cnn
from tests.backends import GPU, HAS_CUDA, backends
from tests.ops.exact import fixed

BACKENDS = backends("char_cnn", reference=True)


KERNELS = backends("char_cnn")


TRITON = [p for p in KERNELS if p.values == ("triton",)]


WIDTHS = ((1, 5), (2, 3), (3, 64), (5, 70), (7, 20))  # (width, filters): less than, exactly and more than a block of 64


PAD = 30


# The interpreter takes a millisecond per tile and window; there a few filters have to do.
INTERPRETED = not HAS_CUDA


FEW = ((1, 5), (3, 20), (6, 17))


class Case(NamedTuple):
    ids: Tensor
    embedding: Tensor
    weights: list[Tensor]
    biases: list[Tensor]

    def to(self, dtype: torch.dtype) -> "Case":
        """Copies in `dtype` that require gradients."""
        embedding, *rest = (
            t.detach().to(dtype).requires_grad_() for t in (self.embedding, *self.weights, *self.biases)
        )
        return Case(self.ids, embedding, rest[: len(self.weights)], rest[len(self.weights) :])

    def tensors(self) -> list[Tensor]:
        return [self.embedding, *self.weights, *self.biases]


def words(kind: str, rows: int, slots: int) -> Tensor:
    """Rows of ids 0..30; PAD fills what a word leaves, except where the kind says otherwise."""
    ids = torch.randint(0, PAD, (rows, slots))
    position = torch.arange(slots)
    if kind == "mixed":
        lengths = torch.randint(0, slots + 1, (rows, 1))
        return torch.where(position < lengths, ids, PAD)
    if kind == "short":
        return torch.where(position < torch.randint(1, 6, (rows, 1)), ids, PAD)
    if kind == "padding rows":
        ids[1::2] = 0
        return torch.where((position < 4) | (ids == 0), ids, PAD)
    if kind == "two tails":
        return torch.where(position < torch.randint(0, slots, (rows, 1)), ids, torch.randint(0, 2, (rows, 1)) * PAD)
    assert kind == "full"
    return ids


def case(kind: str = "mixed", rows: int = 129, slots: int = 50, size: int = 16, widths: tuple = WIDTHS) -> Case:
    weights = [torch.randn(n, size, k) / (size * k) ** 0.5 for k, n in widths]
    return Case(words(kind, rows, slots), torch.randn(PAD + 1, size), weights, [torch.randn(n) for _, n in widths])


def gradients(c: Case, **options) -> tuple[Tensor, list[Tensor]]:
    features = char_cnn(c.ids, c.embedding, c.weights, c.biases, **options)
    return features, list(torch.autograd.grad(features, c.tensors(), fixed(features)))


def few(backend: str, widths: tuple = WIDTHS) -> tuple:
    return FEW if backend in GPU and INTERPRETED else widths
