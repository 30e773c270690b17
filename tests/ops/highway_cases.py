"""Shared by the tests of highway: the backends, cases and the comparison with float64."""

from typing import NamedTuple

import torch
from torch import Tensor

from elmo_fast.ops import highway
from tests.ops.exact import fixed
from tests.support.backends import backends

BACKENDS = backends("highway")
ALL = backends("highway", reference=True)


class Case(NamedTuple):
    x: Tensor
    weights: list[Tensor]
    biases: list[Tensor]
    projection_weight: Tensor | None
    projection_bias: Tensor | None

    def to(self, dtype: torch.dtype) -> "Case":
        """Copies in `dtype` that require gradients."""

        def copy(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.detach().to(dtype).requires_grad_()

        return Case(copy(self.x), [copy(t) for t in self.weights], [copy(t) for t in self.biases], *map(copy, self[3:]))

    def tensors(self) -> list[Tensor]:
        projection = [t for t in self[3:] if t is not None]
        return [self.x, *self.weights, *self.biases, *projection]


def case(rows: int = 70, width: int = 40, layers: int = 2, projection: int = 24, bias: bool = True) -> Case:
    """Projection 0: none. The gates' biases are spread, so that gates open, close and hover."""
    return Case(
        torch.randn(rows, width),
        [torch.randn(2 * width, width) / width**0.5 for _ in range(layers)],
        [2 * torch.randn(2 * width) for _ in range(layers)],
        torch.randn(projection, width) / width**0.5 if projection else None,
        torch.randn(projection) if projection and bias else None,
    )


def gradients(c: Case, **options) -> tuple[Tensor, list[Tensor]]:
    y = highway(*c, **options)
    return y, list(torch.autograd.grad(y, c.tensors(), fixed(y)))
